// Files: write, read, list, look, move, remove.
import assert from 'node:assert/strict';
import { test, describe, before } from 'node:test';
import { Sandbox, create, error, serverURL } from './helpers.mjs';

let sandbox;
let files;
before(async () => {
  sandbox = await create();
  files = sandbox.files;
});

const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 7 + (i >> 8)) & 0xff);

describe('write and read', () => {
  test('text', async () => {
    const info = await files.write('hello.txt', 'hello žluťoučký 🐻\n');
    assert.deepEqual({ name: info.name, type: info.type, path: info.path }, { name: 'hello.txt', type: 'file', path: '/home/user/hello.txt' });
    assert.equal(await files.read('/home/user/hello.txt'), 'hello žluťoučký 🐻\n');
    assert.equal(await files.read('~/hello.txt', { format: 'text' }), 'hello žluťoučký 🐻\n');
  });

  for (const [name, data] of [
    ['an ArrayBuffer', () => bytes.buffer],
    ['a Blob', () => new Blob([bytes])],
    ['a stream', () => new Blob([bytes]).stream()],
  ]) {
    for (const opts of [{}, { useOctetStream: true }, { gzip: true }]) {
      test(`${name} ${JSON.stringify(opts)}, read in every format`, async () => {
        await files.write('/tmp/deep/er/data.bin', data(), opts);
        assert.deepEqual(await files.read('/tmp/deep/er/data.bin', { format: 'bytes' }), bytes);
        assert.deepEqual(await files.read('/tmp/deep/er/data.bin', { format: 'bytes', gzip: true }), bytes);
        const blob = await files.read('/tmp/deep/er/data.bin', { format: 'blob' });
        assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), bytes);
        const parts = [];
        for await (const part of await files.read('/tmp/deep/er/data.bin', { format: 'stream' })) parts.push(part);
        assert.deepEqual(new Uint8Array(Buffer.concat(parts)), bytes);
        await files.remove('/tmp/deep');
      });
    }
  }

  test('several at once, by either name of the method', async () => {
    const infos = await files.write([{ path: 'm/one.txt', data: '1' }, { path: '/tmp/m/two.txt', data: new Blob(['2']) }]);
    assert.deepEqual(infos.map((info) => info.path), ['/home/user/m/one.txt', '/tmp/m/two.txt']);
    await files.writeFiles([{ path: 'm/three.txt', data: '3' }, { path: 'm/four.txt', data: '4' }], { useOctetStream: true });
    assert.equal(await files.read('m/one.txt') + await files.read('/tmp/m/two.txt') + await files.read('m/three.txt') + await files.read('m/four.txt'), '1234');
    assert.deepEqual(await files.write([]), []);
  });

  test('an empty file in every format', async () => {
    for (const opts of [{}, { useOctetStream: true }, { gzip: true }]) {
      await files.write('empty', '', opts);
      assert.equal(await files.read('empty'), '');
      assert.equal((await files.read('empty', { format: 'bytes' })).length, 0);
      assert.equal((await files.read('empty', { format: 'blob' })).size, 0);
    }
  });

  test('overwrites, shorter', async () => {
    await files.write('again', 'a long first text');
    await files.write('again', 'short');
    assert.equal(await files.read('again'), 'short');
  });

  test('as root', async () => {
    await files.write('/root/secret.txt', 'only root', { user: 'root' });
    assert.equal(await files.read('/root/secret.txt', { user: 'root' }), 'only root');
    assert.equal((await files.getInfo('/root/secret.txt', { user: 'root' })).owner, 'root');
    assert.equal((await sandbox.commands.run('cat /root/secret.txt', { user: 'root' })).stdout, 'only root');
  });

  test('parents are made, with their owner', async () => {
    await files.write('/home/user/p/q/r.txt', 'x');
    assert.equal((await sandbox.commands.run('stat -c %U:%a p p/q p/q/r.txt')).stdout, 'user:755\nuser:755\nuser:644\n');
  });

  test('20 MB there and back', async () => {
    const big = new Uint8Array(20_000_000).fill(65);
    big.set(bytes, 9_999_999);
    await files.write('/tmp/big', big.buffer, { useOctetStream: true });
    const back = await files.read('/tmp/big', { format: 'bytes' });
    assert.equal(Buffer.compare(Buffer.from(back), Buffer.from(big)), 0);
    await files.remove('/tmp/big');
  });

  test('what is not there, and what is no file', async () => {
    await assert.rejects(files.read('/no/such'), error('FileNotFoundError', /\/no\/such/));
    await assert.rejects(files.read('/tmp', { format: 'bytes' }), error('InvalidArgumentError', /is a directory/));
    await assert.rejects(files.read('/no/such', { format: 'stream' }), error('FileNotFoundError'));
    await assert.rejects(files.write('/tmp', 'x'), error('InvalidArgumentError'));
    await assert.rejects(files.write('/tmp/x', 'x', { user: 'nobody-here' }), error('AuthenticationError', /nobody-here/));
  });

  test('metadata', async () => {
    const info = await files.write('noted.txt', 'x', { metadata: { author: 'me', 'x-kind': 'a note' } });
    assert.deepEqual(info.metadata, { author: 'me', 'x-kind': 'a note' });
    assert.deepEqual((await files.getInfo('noted.txt')).metadata, { author: 'me', 'x-kind': 'a note' });
    await files.write('noted.txt', 'y', { useOctetStream: true, metadata: { author: 'you' } });
    assert.deepEqual((await files.getInfo('noted.txt')).metadata, { author: 'you' });
    assert.equal((await files.getInfo('hello.txt')).metadata, undefined);
  });
});

describe('folders', () => {
  test('makeDir says whether it was new', async () => {
    assert.equal(await files.makeDir('/tmp/new/sub'), true);
    assert.equal(await files.makeDir('/tmp/new/sub'), false);
    await files.write('/tmp/new/file', '');
    await assert.rejects(files.makeDir('/tmp/new/file'));
  });

  test('list, and how deep', async () => {
    await files.write([{ path: '/tmp/tree/b.txt', data: 'bb' }, { path: '/tmp/tree/a/one', data: '1' }, { path: '/tmp/tree/a/z/deep', data: 'd' }]);
    await sandbox.commands.run('ln -s a /tmp/tree/link && ln -s nowhere /tmp/tree/dangling');
    const names = (list) => list.map((entry) => `${entry.path.slice('/tmp/tree/'.length)}:${entry.type}`);
    assert.deepEqual(names(await files.list('/tmp/tree')), ['a:dir', 'b.txt:file', 'dangling:symlink', 'link:dir']);
    assert.deepEqual(names(await files.list('/tmp/tree', { depth: 2 })).slice(0, 3), ['a:dir', 'a/one:file', 'a/z:dir']);
    const all = await files.list('/tmp/tree', { depth: 9 });
    assert.ok(all.some((entry) => entry.path === '/tmp/tree/a/z/deep'));
    assert.ok(!all.some((entry) => entry.path.startsWith('/tmp/tree/link/')), 'a link is not followed');
    const file = all.find((entry) => entry.name === 'b.txt');
    assert.equal(file.size, 2);
    assert.equal(file.owner, 'user');
    assert.equal(file.group, 'user');
    assert.equal(file.permissions, '-rw-r--r--');
    assert.equal(file.mode & 0o777, 0o644);
    assert.ok(Math.abs(Date.now() - file.modifiedTime) < 300_000);
    assert.equal(all.find((entry) => entry.name === 'link').symlinkTarget, '/tmp/tree/a');
  });

  test('list what is no folder', async () => {
    await assert.rejects(files.list('/no/such'), error('FileNotFoundError'));
    await assert.rejects(files.list('hello.txt'), error('InvalidArgumentError'));
    assert.ok((await files.list('.')).some((entry) => entry.name === 'hello.txt'), 'relative to the home');
  });

  test('exists and getInfo', async () => {
    assert.equal(await files.exists('hello.txt'), true);
    assert.equal(await files.exists('/tmp'), true);
    assert.equal(await files.exists('/no/such'), false);
    const info = await files.getInfo('hello.txt');
    assert.equal(info.path, '/home/user/hello.txt');
    assert.equal(info.type, 'file');
    assert.equal((await files.getInfo('/tmp')).type, 'dir');
    await assert.rejects(files.getInfo('/no/such'), error('FileNotFoundError'));
  });

  test('rename', async () => {
    await files.write('old-name', 'same');
    const info = await files.rename('old-name', '/tmp/made/for/it/new-name');
    assert.equal(info.path, '/tmp/made/for/it/new-name');
    assert.equal(await files.exists('old-name'), false);
    assert.equal(await files.read('/tmp/made/for/it/new-name'), 'same');
    await assert.rejects(files.rename('/no/such', '/tmp/x'), error('FileNotFoundError'));
  });

  test('remove takes all of it, and nothing is nothing', async () => {
    await files.write('/tmp/gone/a/b', 'x');
    await files.remove('/tmp/gone');
    assert.equal(await files.exists('/tmp/gone'), false);
    await files.remove('/tmp/gone');
  });
});

test('a full disk is said to be full', async () => {
  // The packages cannot ask for a small disk; Cubby's own field can.
  const res = await fetch(`${serverURL}/v2/sandboxes`, {
    method: 'POST',
    headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
    body: JSON.stringify({ templateID: 'base', cubbyLimits: { diskMB: 32 } }),
  });
  assert.equal(res.status, 201);
  const small = await Sandbox.connect((await res.json()).sandboxID);
  try {
    await small.commands.run('head -c 64M /dev/zero > /tmp/fill 2>/dev/null || true');
    for (const opts of [{}, { useOctetStream: true }]) {
      await assert.rejects(small.files.write('/tmp/more', bytes.buffer, opts), error('NotEnoughSpaceError'));
    }
    await small.files.remove('/tmp/fill');
    await small.files.write('/tmp/more', bytes.buffer);
    assert.deepEqual(await small.files.read('/tmp/more', { format: 'bytes' }), bytes);
  } finally {
    await small.kill();
  }
});
