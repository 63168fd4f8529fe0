// Links to files that work without the SDK.
import assert from 'node:assert/strict';
import { test, before } from 'node:test';
import { create, error, routed, secure } from './helpers.mjs';

let sandbox;
let other;
before(async () => {
  [sandbox, other] = await Promise.all([create(), create()]);
});

const envdPort = 49983;

async function upload(url, data, headers) {
  const form = new FormData();
  form.append('file', new Blob([data]));
  return fetch(url, { method: 'POST', body: form, headers });
}

if (secure) {
  test('upload and download, by the signature alone', async () => {
    const res = await upload(await sandbox.uploadUrl('linked.txt'), 'by link');
    assert.equal(res.status, 200);
    assert.equal((await res.json())[0].path, '/home/user/linked.txt');
    assert.equal(await sandbox.files.read('linked.txt'), 'by link');
    const down = await fetch(await sandbox.downloadUrl('linked.txt'));
    assert.equal(down.status, 200);
    assert.match(down.headers.get('content-disposition'), /linked\.txt/);
    assert.equal(await down.text(), 'by link');
    assert.equal(await other.files.exists('linked.txt'), false, 'it is never another\'s sandbox');
  });

  test('upload of bytes as they are', async () => {
    const res = await fetch(await sandbox.uploadUrl('/tmp/raw.bin'), { method: 'POST', body: new Uint8Array([0, 1, 2]), headers: { 'Content-Type': 'application/octet-stream' } });
    assert.equal(res.status, 200);
    assert.deepEqual(await sandbox.files.read('/tmp/raw.bin', { format: 'bytes' }), new Uint8Array([0, 1, 2]));
  });

  test('upload without a path: the parts name their own', async () => {
    const form = new FormData();
    form.append('file', new Blob(['1']), '/tmp/named/one');
    form.append('file', new Blob(['2']), '/tmp/named/two');
    const res = await fetch(await sandbox.uploadUrl(), { method: 'POST', body: form });
    assert.equal(res.status, 200);
    assert.equal(await sandbox.files.read('/tmp/named/one') + await sandbox.files.read('/tmp/named/two'), '12');
  });

  test('a path that needs quoting, another user, a range', async () => {
    const path = '/tmp/a b&c=d%+é#?.txt';
    assert.equal((await upload(await sandbox.uploadUrl(path, { user: 'root' }), '0123456789')).status, 200);
    assert.equal((await sandbox.files.getInfo(path)).owner, 'root');
    const res = await fetch(await sandbox.downloadUrl(path, { user: 'root' }), { headers: { Range: 'bytes=2-4', 'Accept-Encoding': 'identity' } });
    assert.equal(res.status, 206);
    assert.equal(await res.text(), '234');
  });

  test('a signature that expires', async () => {
    await sandbox.files.write('linked.txt', 'by link');
    const good = await fetch(await sandbox.downloadUrl('linked.txt', { useSignatureExpiration: 120 }));
    assert.equal(await good.text(), 'by link');
    for (const url of [await sandbox.downloadUrl('linked.txt', { useSignatureExpiration: -120 })]) {
      const res = await fetch(url);
      assert.equal(res.status, 401);
      assert.deepEqual(await res.json(), { code: 401, message: 'signature is already expired' });
    }
    const res = await upload(await sandbox.uploadUrl('linked.txt', { useSignatureExpiration: -120 }), 'late');
    assert.equal(res.status, 401);
    assert.equal(await sandbox.files.read('linked.txt'), 'by link');
  });

  test('no other path, operation, user or time', async () => {
    await sandbox.files.write('linked.txt', 'by link');
    const change = async (edit) => {
      const url = new URL(await sandbox.downloadUrl('linked.txt', { useSignatureExpiration: 120 }));
      edit(url.searchParams);
      return fetch(url, { headers: routed(sandbox, envdPort) });
    };
    for (const [name, edit, says] of [
      ['path', (q) => q.set('path', '/etc/passwd'), 'invalid signature'],
      ['user', (q) => q.set('username', 'root'), 'invalid signature'],
      ['time', (q) => q.set('signature_expiration', '99999999999'), 'invalid signature'],
      ['signature', (q) => q.set('signature', 'v1_AAAA'), 'invalid signature'],
      ['none', (q) => q.delete('signature'), 'missing signature query parameter'],
    ]) {
      const res = await change(edit);
      assert.equal(res.status, 401, name);
      assert.deepEqual(await res.json(), { code: 401, message: says }, name);
    }
    const res = await upload(await sandbox.downloadUrl('linked.txt'), 'a read is no write');
    assert.equal(res.status, 401);
    const lost = new URL(await sandbox.downloadUrl('linked.txt'));
    lost.searchParams.set('signature', 'v1_AAAA');
    assert.equal((await fetch(lost)).status, 401, 'nobody\'s signature, without routing');
  });

  test('no link outlives its sandbox', async () => {
    const short = await create();
    await short.files.write('x', 'x');
    const url = await short.downloadUrl('x');
    assert.equal((await fetch(url)).status, 200);
    await short.kill();
    assert.ok([401, 502].includes((await fetch(url)).status));
  });
} else {
  test('a sandbox without a token has plain links, to be routed by headers', async () => {
    assert.doesNotMatch(await sandbox.uploadUrl('open.txt'), /signature/);
    const headers = routed(sandbox, envdPort);
    assert.equal((await upload(await sandbox.uploadUrl('open.txt'), 'open', headers)).status, 200);
    assert.equal(await (await fetch(await sandbox.downloadUrl('open.txt'), { headers })).text(), 'open');
    await assert.rejects(sandbox.downloadUrl('open.txt', { useSignatureExpiration: 10 }), error('InvalidArgumentError'));
  });
}
