// A sandbox that is paused, resumed, copied and put back, as E2B's packages have it.
import assert from 'node:assert/strict';
import { test, describe, before } from 'node:test';
import { Sandbox, core, create, error, generation, secure, until } from './helpers.mjs';

const newest = { skip: generation === 'new' ? false : 'the newest packages only' };
const insecure = { skip: secure ? false : 'one variant is enough' };

describe('pause and connect', insecure, () => {
  let sandbox;
  before(async () => {
    sandbox = await create({ metadata: { life: 'paused' }, timeoutMs: 120_000 });
  });

  test('what runs goes on', async () => {
    await sandbox.runCode('x = 41');
    await sandbox.files.write('/tmp/kept', 'kept');
    const background = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n > /tmp/count; sleep 0.1; done', { background: true, timeoutMs: 0 });
    await until(() => sandbox.files.exists('/tmp/count'), 'the command to begin');
    // What is under way is cut as by a kill, and the packages say so.
    const cut = [background.wait()];
    let exited;
    await sandbox.files.watchDir('/tmp', () => {}, { timeoutMs: 0, onExit: (err) => { exited = { err }; } });
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData() {} });
    cut.push(terminal.wait());
    const context = await sandbox.createCodeContext();
    await new Promise((begun) => {
      cut.push(sandbox.runCode('import time\nprint("begun", flush=True)\ntime.sleep(600)', { context, timeoutMs: 0, onStdout: begun }));
    });
    const ends = Promise.all(cut.map((promise) => promise.then(() => 'it ended', (err) => err.name)));

    assert.equal(await sandbox.pause(), true);
    assert.deepEqual(await ends, ['TimeoutError', 'TimeoutError', 'TimeoutError']);
    await until(() => exited, 'onExit');
    assert.equal(exited.err.name, 'TimeoutError');
    assert.equal(await sandbox.isRunning(), false);
    const info = await sandbox.getInfo();
    assert.equal(info.state, 'paused');
    assert.ok(info.endAt <= new Date(Date.now() + 2_000), 'its end is when it was paused');
    if (generation === 'new') assert.equal(await sandbox.betaPause(), false, 'paused already');

    const same = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 90_000 });
    assert.equal(same.sandboxId, sandbox.sandboxId);
    assert.equal(same.envdAccessToken, sandbox.envdAccessToken);
    assert.equal(await same.isRunning(), true);
    assert.equal((await same.runCode('x + 1')).text, '42');
    assert.equal(await same.files.read('/tmp/kept'), 'kept');
    assert.ok((await same.commands.list()).some((p) => p.pid === background.pid), 'the command is listed');
    const count = Number(await same.files.read('/tmp/count'));
    await until(async () => Number(await same.files.read('/tmp/count')) > count, 'the command to go on');
    const again = await same.commands.connect(background.pid);
    assert.equal(await again.kill(), true);
    const left = (await same.getInfo()).endAt - Date.now();
    assert.ok(left > 60_000 && left <= 92_000, `${left} ms`);
  });

  test('the lists know both states', async () => {
    const other = await create({ metadata: { life: 'paused' } });
    await sandbox.pause();
    const ids = async (state) => (await Sandbox.list({ query: { metadata: { life: 'paused' }, state } }).nextItems()).map((s) => [s.sandboxId, s.state]);
    assert.deepEqual(await ids(['paused']), [[sandbox.sandboxId, 'paused']]);
    assert.deepEqual(await ids(['running']), [[other.sandboxId, 'running']]);
    assert.equal((await ids(undefined)).length, 2);
  });

  test('what a paused sandbox answers', async () => {
    assert.equal((await sandbox.getInfo()).state, 'paused');
    await assert.rejects(sandbox.setTimeout(60_000), error('SandboxNotFoundError', new RegExp(sandbox.sandboxId)));
    await assert.rejects(sandbox.commands.run('true'), error('SandboxNotFoundError'));
    await assert.rejects(sandbox.files.read('/tmp/kept'), error('TimeoutError', /it is paused/));
    await assert.rejects(sandbox.files.write('/tmp/kept', 'other'), error('TimeoutError', /it is paused/));
    await assert.rejects(sandbox.runCode('1'), error('TimeoutError', /it is paused/));
    assert.equal(await sandbox.isRunning(), false);
  });

  test('it is killed while it is paused', async () => {
    assert.equal(await Sandbox.kill(sandbox.sandboxId), true);
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false);
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), error('SandboxNotFoundError', generation === 'new' ? /Paused sandbox .* not found/ : /not found/));
    await assert.rejects(sandbox.pause(), error('SandboxNotFoundError'));
  });
});

test('files alone: a cold boot with the files', newest, async () => {
  const boot = (box) => box.files.read('/proc/sys/kernel/random/boot_id');
  const sandbox = await create();
  await sandbox.files.write('/home/user/kept', 'kept');
  await sandbox.runCode('y = 1');
  const first = await boot(sandbox);
  assert.equal(await sandbox.pause({ keepMemory: false }), true);
  await sandbox.connect();
  const second = await boot(sandbox);
  assert.notEqual(second, first);
  assert.equal(await sandbox.files.read('/home/user/kept'), 'kept');
  assert.equal((await sandbox.runCode('y')).error?.name, 'NameError');
  await sandbox.pause();
  await sandbox.connect({ onResume: 'reboot' });
  assert.notEqual(await boot(sandbox), second);
  assert.equal(await sandbox.files.read('/home/user/kept'), 'kept');
});

test('a sandbox is paused at its end, and woken by what is asked of it', newest, async () => {
  const sandbox = await create({ timeoutMs: 300_000, lifecycle: { onTimeout: 'pause', autoResume: true } });
  const asleep = async () => {
    await sandbox.setTimeout(0);
    assert.equal((await sandbox.getInfo()).state, 'paused');
    assert.equal(await sandbox.isRunning(), false, 'and asking for its health leaves it so');
    assert.equal((await sandbox.getInfo()).state, 'paused');
  };
  assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true });
  await sandbox.runCode('z = 7');
  await asleep();
  const together = await Promise.all([sandbox.commands.run('echo one'), sandbox.files.write('/tmp/two', 'x'.repeat(100_000)), sandbox.runCode('z')]);
  assert.equal(together[0].stdout, 'one\n');
  assert.equal(together[2].text, '7');
  assert.equal((await sandbox.files.read('/tmp/two')).length, 100_000);
  await asleep();
  assert.equal((await sandbox.runCode('z + 1')).text, '8');
  const stranger = new Sandbox({ sandboxId: sandbox.sandboxId, envdVersion: '0.6.13', envdAccessToken: 'f'.repeat(48) });
  await asleep();
  await assert.rejects(stranger.commands.run('true'), error('AuthenticationError'));
  await assert.rejects(stranger.runCode('1'), error('SandboxError', /401/));
  assert.equal((await sandbox.getInfo()).state, 'paused', 'whoever has no token wakes nothing');
});

describe('snapshots', newest, () => {
  test('are made, listed, made into sandboxes, and deleted', async () => {
    const sandbox = await create();
    await sandbox.runCode('w = "snapped"');
    const name = `snap-${sandbox.sandboxId}`;
    const unnamed = await sandbox.createSnapshot();
    const named = await Sandbox.createSnapshot(sandbox.sandboxId, { name: `${name}:v1` });
    assert.deepEqual(unnamed.names, []);
    assert.match(unnamed.snapshotId, /:default$/);
    assert.deepEqual(named, { snapshotId: `${name}:v1`, names: [name] });
    assert.equal(await sandbox.isRunning(), true);

    const ids = async (paginator) => {
      const all = [];
      while (paginator.hasNext) all.push(...(await paginator.nextItems()).map((s) => s.snapshotId));
      return all;
    };
    assert.deepEqual(await ids(sandbox.listSnapshots()), [named.snapshotId, unnamed.snapshotId]);
    assert.deepEqual(await ids(Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId, limit: 1 })), [named.snapshotId, unnamed.snapshotId]);
    assert.deepEqual(await ids(Sandbox.listSnapshots({ name })), [named.snapshotId]);

    const copy = await create({}, named.snapshotId);
    assert.notEqual(copy.sandboxId, sandbox.sandboxId);
    assert.notEqual(copy.envdAccessToken, sandbox.envdAccessToken);
    assert.equal((await copy.runCode('w')).text, 'snapped');

    assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), true);
    assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), false);
    assert.equal(await Sandbox.deleteSnapshot(unnamed.snapshotId), true);
    await assert.rejects(Sandbox.create(named.snapshotId), error('SandboxError', /^404: template '.*' not found/));
    assert.equal(await copy.isRunning(), true);
  });
  test('of what cannot be', async () => {
    const sandbox = await create();
    await assert.rejects(sandbox.createSnapshot({ name: 'Not A Name' }), error('SandboxError', /^400: snapshot name/));
    await assert.rejects(Sandbox.createSnapshot('i0123456789abcdefghij'), error('SandboxNotFoundError'));
    await assert.rejects(Sandbox.listSnapshots({ nextToken: 'x' }).nextItems(), error('SandboxError', /^400: Invalid next token/));
  });
});

test('forks', newest, async () => {
  const sandbox = await create();
  await sandbox.runCode('v = 1');
  const copies = await sandbox.fork({ count: 2, timeoutMs: 60_000 });
  try {
    assert.equal(copies.length, 2);
    for (const copy of copies) {
      assert.ok(copy instanceof Sandbox, `${copy}`);
      assert.equal((await copy.runCode('v')).text, '1');
    }
    await copies[0].runCode('v = 2');
    assert.equal((await copies[1].runCode('v')).text, '1');
    assert.equal((await sandbox.runCode('v')).text, '1');
    assert.equal(new Set([sandbox, ...copies].map((s) => s.envdAccessToken)).size, 3);
  } finally {
    await Promise.all(copies.map((copy) => copy instanceof core.Sandbox && copy.kill()));
  }
  await assert.rejects(Sandbox.fork(sandbox.sandboxId, { count: 101 }), error('SandboxError', /^400: Count cannot be greater than 100/));
  await assert.rejects(Sandbox.fork('i0123456789abcdefghij'), error('SandboxNotFoundError', /doesn't exist/));
});
