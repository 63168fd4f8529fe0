// The network options of E2B's packages, in the world of ../../world_test.go.
import assert from 'node:assert/strict';
import { test, describe, before } from 'node:test';
import { core, create, error, generation, routed, serverURL, until } from '../helpers.mjs';

const { ALL_TRAFFIC, Sandbox, Secret } = core;
const api = process.env.WORLD_API;
const other = process.env.WORLD_OTHER;
const value = 'sk-0123456789abcdef';

/** What a request from inside comes to: the answer, or null. */
async function get(sandbox, url) {
  const out = await sandbox.commands.run(`curl -sSfk --max-time 20 ${url} || echo failed`);
  return out.stdout.includes('failed') ? null : JSON.parse(out.stdout);
}

describe('what a sandbox may connect to', { skip: generation !== 'new' }, () => {
  let sandbox;
  before(async () => {
    sandbox = await create({ network: { allowOut: [api], denyOut: [ALL_TRAFFIC] } });
  });

  test('is what allowOut names', async () => {
    assert.equal((await get(sandbox, `https://${api}/one`)).Path, '/one');
    assert.equal(await get(sandbox, `https://${other}/`), null);
    const info = await sandbox.getInfo();
    assert.deepEqual(info.network.allowOut, [api]);
    assert.deepEqual(info.network.denyOut, [ALL_TRAFFIC]);
  });

  test('changes while it runs, as a whole', async () => {
    await sandbox.updateNetwork({ allowOut: [other], denyOut: [ALL_TRAFFIC] });
    assert.equal(await get(sandbox, `https://${api}/`), null);
    assert.equal((await get(sandbox, `https://${other}/two`)).Path, '/two');
    await sandbox.updateNetwork({ allowInternetAccess: false });
    assert.equal(await get(sandbox, `https://${other}/`), null);
  });

  test('is nothing without access to the Internet', async () => {
    const closed = await create({ allowInternetAccess: false });
    assert.equal(await get(closed, `https://${api}/`), null);
  });

  for (const [name, network, says] of [
    ['a name in denyOut', { denyOut: ['example.com'] }, /400.*invalid denied CIDR example\.com/],
    ['names without ALL_TRAFFIC', { allowOut: ['example.com'] }, /400.*you must include 'ALL_TRAFFIC' in deny out/],
    ['a header that frames', { rules: { [api]: [{ transform: { headers: { Host: 'x' } } }] } }, /400.*"Host"/],
    ['two transforms', { rules: { [api]: [{ transform: { headers: { A: '1' } } }, { transform: { headers: { B: '2' } } }] } }, /400.*at most 1 transform/],
    ['a proxy without a port', { egressProxy: { address: 'proxy.example.com' } }, /400.*host:port/],
    ['a proxy with a password alone', { egressProxy: { address: 'proxy.example.com:1080', password: 'p' } }, /400.*password must be empty/],
    ['a proxy that is not public', { egressProxy: { address: '10.0.0.1:1080' } }, /400.*internal \/ denied IP range/],
    ['a secret that is not there', { rules: { [api]: [{ transform: { headers: { A: Secret?.fill('none') } } }] } }, /400.*Secret 'none' not found/],
    ['an https port of envd', { httpsPorts: [49983] }, /400.*cannot be listed/],
  ]) {
    test(`${name} is refused`, async () => {
      await assert.rejects(Sandbox.create({ network }), error('SandboxError', says));
      if (name !== 'an https port of envd') await assert.rejects(sandbox.updateNetwork(network), error('SandboxError', says));
    });
  }
});

describe('secrets', { skip: generation !== 'new' }, () => {
  test('are made, listed, changed and destroyed, and never told', async () => {
    const made = await Secret.create('Listed', value, { metadata: { env: 'test' } });
    assert.match(made.secretId, /^sec_/);
    assert.equal(made.name, 'listed');
    assert.equal(made.version, 1);
    assert.deepEqual(made.metadata, { env: 'test' });
    assert.equal((await Secret.getInfo('listed')).secretId, made.secretId);
    const changed = await Secret.update(made.secretId, `${value}2`);
    assert.equal(changed.version, 2);
    assert.ok(changed.updatedAt >= made.createdAt);
    await Secret.create('listed-2', value);
    const pages = Secret.list({ limit: 1 });
    const names = [];
    while (pages.hasNext) for (const secret of await pages.nextItems()) names.push(secret.name);
    assert.deepEqual(names.filter((name) => name.startsWith('listed')), ['listed', 'listed-2']);
    await assert.rejects(Secret.create('listed', value), error('SecretError', /409.*already exists/));
    await assert.rejects(Secret.create('sec_x', value), error('SecretError', /400/));
    assert.equal(await Secret.destroy('listed'), true);
    assert.equal(await Secret.destroy('listed'), false);
    assert.equal(await Secret.exists('listed'), false);
    await assert.rejects(Secret.getInfo('listed'), error('SecretNotFoundError'));
    await assert.rejects(Secret.update('listed', value), error('SecretNotFoundError'));
  });

  test('are added to requests outside', async () => {
    await Secret.create('api-key', value);
    const rules = { [api]: [{ transform: { headers: { Authorization: `Bearer ${Secret.fill('api-key')}` } } }] };
    const sandbox = await create({ network: { allowOut: ({ rules }) => [...rules.keys()], denyOut: ({ allTraffic }) => [allTraffic], rules } });
    const told = await get(sandbox, `https://${api}/`);
    assert.equal(told.Header.Authorization[0], '*'.repeat(`Bearer ${value}`.length)); // it was there, and is taken out of the answer
    assert.equal(JSON.stringify(await sandbox.getInfo()).includes(value), false);
    await Secret.destroy('api-key');
    assert.equal(await get(sandbox, `https://${api}/`), null);
  });
});

test('a port of httpsPorts is reached by TLS', { skip: generation !== 'new' }, async () => {
  const sandbox = await create({ network: { httpsPorts: [8443], maskRequestHost: 'inside.test:${PORT}' } });
  await sandbox.files.write('/home/user/server.js', `
    const { execFileSync } = require('node:child_process');
    const { readFileSync } = require('node:fs');
    execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'key.pem', '-out', 'cert.pem', '-days', '1', '-subj', '/CN=self']);
    const tls = { key: readFileSync('key.pem'), cert: readFileSync('cert.pem') };
    const answer = (kind) => (req, res) => res.end(JSON.stringify({ kind, host: req.headers.host, forwarded: req.headers['x-forwarded-host'] }));
    require('node:https').createServer(tls, answer('https')).listen(8443, '127.0.0.1');
    require('node:http').createServer(answer('http')).listen(8080, '127.0.0.1');`);
  await sandbox.commands.run('cd /home/user && exec node server.js', { background: true, timeoutMs: 0 });
  const ask = (port) => fetch(serverURL, { headers: routed(sandbox, port) });
  await until(async () => (await ask(8080)).status === 200, 'the servers inside');
  const https = await (await ask(8443)).json();
  assert.equal(https.kind, 'https');
  assert.equal(https.host, 'inside.test:8443');
  assert.equal(https.forwarded, new URL(serverURL).host);
  assert.equal((await (await ask(8080)).json()).kind, 'http');
  assert.deepEqual((await sandbox.getInfo()).network.httpsPorts, [8443]);
  // One that speaks no TLS is not reached in the clear.
  const plain = await create({ network: { httpsPorts: [8080] } });
  await plain.commands.run('exec python3 -m http.server 8080 --bind 127.0.0.1', { background: true, timeoutMs: 0 });
  await plain.commands.run('for i in $(seq 100); do curl -s http://127.0.0.1:8080/ && exit; sleep 0.1; done; exit 1');
  assert.equal((await fetch(serverURL, { headers: routed(plain, 8080) })).status, 502);
});
