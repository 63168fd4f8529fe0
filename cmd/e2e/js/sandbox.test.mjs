// A sandbox's life: create, look, list, prolong, connect, kill.
import assert from 'node:assert/strict';
import { test, describe, before } from 'node:test';
import { Sandbox, core, create, error, generation, secure, until } from './helpers.mjs';

describe('a sandbox', () => {
  let sandbox;
  before(async () => {
    sandbox = await create({ metadata: { purpose: 'e2e', 'odd key&=': 'odd välue&=%' }, envs: { FROM_CREATE: 'yes' }, timeoutMs: 120_000 });
  });

  test('has an id of E2B\'s shape', () => assert.match(sandbox.sandboxId, /^[a-z0-9]+$/));

  test('has an access token unless it was created without', () => {
    assert.equal(typeof sandbox.envdAccessToken, secure ? 'string' : 'undefined');
  });

  test('is running', async () => assert.equal(await sandbox.isRunning(), true));

  test('knows the environment it was created with, and what it is', async () => {
    const { stdout } = await sandbox.commands.run('echo $FROM_CREATE $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID');
    assert.equal(stdout, `yes true ${sandbox.sandboxId} code-interpreter-v1\n`);
  });

  test('getInfo, of the instance and by id', async () => {
    for (const info of [await sandbox.getInfo(), await Sandbox.getInfo(sandbox.sandboxId), await Sandbox.getFullInfo(sandbox.sandboxId)]) {
      assert.equal(info.sandboxId, sandbox.sandboxId);
      assert.equal(info.templateId, 'code-interpreter-v1');
      assert.equal(info.state, 'running');
      assert.deepEqual(info.metadata, { purpose: 'e2e', 'odd key&=': 'odd välue&=%' });
      assert.ok(info.startedAt instanceof Date && !Number.isNaN(+info.startedAt));
      assert.ok(info.endAt - info.startedAt >= 119_000 && info.endAt - info.startedAt <= 121_000, `${info.endAt - info.startedAt} ms`);
      assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128);
      assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/);
      assert.deepEqual(info.volumeMounts, []);
      assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false });
    }
  });

  test('setTimeout counts from now, and may shorten', async () => {
    for (const [set, ms] of [[(ms) => sandbox.setTimeout(ms), 600_000], [(ms) => Sandbox.setTimeout(sandbox.sandboxId, ms), 200_000]]) {
      const asked = Date.now();
      await set(ms);
      const { endAt } = await sandbox.getInfo();
      const left = endAt - asked;
      assert.ok(left >= ms - 2_000 && left <= ms + 30_000, `${left} ms`);
    }
  });

  test('connect finds it, and only ever prolongs its life', async () => {
    const { endAt } = await sandbox.getInfo();
    const same = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 });
    assert.equal(same.sandboxId, sandbox.sandboxId);
    assert.equal(same.envdAccessToken, sandbox.envdAccessToken);
    assert.equal((await same.commands.run('echo connected')).stdout, 'connected\n');
    assert.equal(+(await same.getInfo()).endAt, +endAt);
    assert.equal(await same.connect({ timeoutMs: 900_000 }), same);
    assert.ok((await same.getInfo()).endAt > endAt);
  });

  test('getMetrics, of the instance and by id', async () => {
    const [metric] = await until(async () => { const all = await sandbox.getMetrics(); return all.length && all; }, 'metrics');
    assert.ok(metric.timestamp instanceof Date && !Number.isNaN(+metric.timestamp));
    for (const name of ['cpuUsedPct', 'cpuCount', 'memUsed', 'memTotal', 'memCache', 'diskUsed', 'diskTotal']) {
      assert.equal(typeof metric[name], 'number', name);
    }
    assert.ok(metric.cpuCount >= 1 && metric.memTotal > 2 ** 20 && metric.memUsed > 0 && metric.diskTotal > 2 ** 20);
    assert.ok((await Sandbox.getMetrics(sandbox.sandboxId)).length >= 1);
    const before = new Date(Date.now() - 7200_000);
    assert.deepEqual(await sandbox.getMetrics({ start: before, end: new Date(+before + 1000) }), [], 'there was nothing before it lived');
  });

  test('getHost names a port', () => {
    assert.match(sandbox.getHost(3000), new RegExp(`^3000-${sandbox.sandboxId}\\.`));
  });

  test('git works where the machine has it', async (t) => {
    const found = await sandbox.commands.run('command -v git || true');
    if (!found.stdout.trim()) return t.skip('there is no git on this machine');
    await sandbox.git.init('/home/user/repo');
    await sandbox.git.configureUser('A', 'a@example.com');
    await sandbox.files.write('/home/user/repo/a.txt', 'a');
    assert.equal((await sandbox.git.status('/home/user/repo')).isClean, false);
    await sandbox.git.add('/home/user/repo');
    await sandbox.git.commit('/home/user/repo', 'first');
    assert.equal((await sandbox.git.status('/home/user/repo')).isClean, true);
  });
});

describe('create', () => {
  test('takes a template by name or as an option, by either package', async () => {
    const named = await core.Sandbox.create('base');
    const asked = await core.Sandbox.create({ template: 'code-interpreter-v1' });
    const byDefault = await core.Sandbox.create();
    try {
      assert.equal((await named.getInfo()).templateId, 'base');
      assert.equal((await asked.getInfo()).templateId, 'code-interpreter-v1');
      const info = await byDefault.getInfo();
      assert.equal(info.templateId, 'base');
      assert.equal(info.endAt - info.startedAt, 300_000, 'both packages mean five minutes');
    } finally {
      await Promise.all([named.kill(), asked.kill(), byDefault.kill()]);
    }
  });

  test('a bound client creates, too', async (t) => {
    if (!core.E2B) return t.skip('these packages have no bound client');
    const client = new core.E2B({ apiKey: process.env.E2B_API_KEY, apiUrl: process.env.E2B_API_URL });
    const sandbox = await client.Sandbox.create();
    assert.equal((await sandbox.commands.run('echo bound')).stdout, 'bound\n');
    assert.equal(await client.Sandbox.kill(sandbox.sandboxId), true);
  });

  test('echoes whether internet access was allowed', async () => {
    const open = await create({ allowInternetAccess: true });
    assert.equal((await open.getInfo()).allowInternetAccess, true);
    const closed = await create({ allowInternetAccess: false });
    assert.equal((await closed.getInfo()).allowInternetAccess, false);
    await Promise.all([open.kill(), closed.kill()]);
  });

  test('a life of two seconds ends by itself', async () => {
    const short = await create({ timeoutMs: 2_000 });
    await until(async () => !(await short.isRunning()), 'the end of a short life');
    await assert.rejects(Sandbox.getInfo(short.sandboxId), error('SandboxNotFoundError'));
    assert.equal(await short.kill(), false);
  });
});

describe('kill', () => {
  test('says whether there was one, of the instance and by id', async () => {
    const [a, b] = await Promise.all([create(), create()]);
    assert.equal(await a.kill(), true);
    assert.equal(await a.kill(), false);
    assert.equal(await Sandbox.kill(b.sandboxId), true);
    assert.equal(await Sandbox.kill(b.sandboxId), false);
    assert.equal(await a.isRunning(), false);
  });
});

describe('list', () => {
  const mark = `list-${generation}-${secure}-${process.pid}-${Date.now()}`;
  let boxes;
  before(async () => {
    boxes = [];
    for (const number of ['1', '2', '3']) boxes.push(await create({ metadata: { mark, number, odd: 'a b&c=d/%é' } }));
  });
  const ids = (list) => list.map((info) => info.sandboxId);
  async function all(opts) {
    const paginator = Sandbox.list(opts);
    const found = [];
    while (paginator.hasNext) found.push(...(await paginator.nextItems()));
    return found;
  }

  test('newest first, by metadata', async () => {
    const found = await all({ query: { metadata: { mark } } });
    assert.deepEqual(ids(found), ids(boxes).reverse());
    assert.deepEqual(found[0].metadata, { mark, number: '3', odd: 'a b&c=d/%é' });
    assert.equal(found[0].state, 'running');
    assert.equal(found[0].templateId, 'code-interpreter-v1');
    assert.ok(found[0].startedAt instanceof Date && found[0].endAt > found[0].startedAt);
  });

  test('every given pair must match', async () => {
    assert.deepEqual(ids(await all({ query: { metadata: { mark, number: '2', odd: 'a b&c=d/%é' } } })), [boxes[1].sandboxId]);
    assert.deepEqual(await all({ query: { metadata: { mark, number: '9' } } }), []);
  });

  test('in pages, which lose and repeat nothing', async () => {
    for (const order of ['desc', 'asc']) {
      const paginator = Sandbox.list({ query: { metadata: { mark } }, limit: 2, order });
      const first = await paginator.nextItems();
      assert.equal(first.length, 2);
      assert.equal(paginator.hasNext, true);
      const rest = Sandbox.list({ query: { metadata: { mark } }, limit: 2, order, nextToken: paginator.nextToken });
      const second = await rest.nextItems();
      assert.equal(rest.hasNext, false);
      const want = order === 'asc' ? ids(boxes) : ids(boxes).reverse();
      assert.deepEqual([...ids(first), ...ids(second)], want, order);
    }
  });

  test('by state, template and time', async () => {
    assert.equal((await all({ query: { metadata: { mark }, state: ['running'] } })).length, 3);
    assert.equal((await all({ query: { metadata: { mark }, state: ['running', 'paused'] } })).length, 3);
    assert.deepEqual(await all({ query: { metadata: { mark }, state: ['paused'] } }), []);
    assert.equal((await all({ query: { metadata: { mark }, template: 'code-interpreter-v1' } })).length, 3);
    assert.deepEqual(await all({ query: { metadata: { mark }, template: 'base' } }), []);
    const { startedAt } = await boxes[1].getInfo();
    assert.deepEqual(ids(await all({ query: { metadata: { mark }, startedAfter: startedAt } })).includes(boxes[2].sandboxId), true);
    assert.deepEqual(await all({ query: { metadata: { mark }, startedAfter: new Date(Date.now() + 3600_000) } }), []);
  });

  test('shows no sandbox that ended', async () => {
    await boxes[0].kill();
    assert.deepEqual(ids(await all({ query: { metadata: { mark } } })), [boxes[2].sandboxId, boxes[1].sandboxId]);
  });
});
