// Watching a folder.
import assert from 'node:assert/strict';
import { test, before } from 'node:test';
import { create, error, until } from './helpers.mjs';

let sandbox;
before(async () => {
  sandbox = await create();
});

/** Watches a new folder and gathers "type:name" of every event. */
async function watch(dir, opts = {}) {
  await sandbox.files.makeDir(dir);
  const events = [];
  const handle = await sandbox.files.watchDir(dir, (event) => { events.push(event); }, { timeoutMs: 0, ...opts });
  const sees = (type, name) => until(() => events.find((event) => event.type === type && event.name === name),
    `${type}:${name} among ${events.map((event) => `${event.type}:${event.name}`)}`);
  return { handle, events, sees };
}

test('what happens in a folder', async () => {
  const { handle, events, sees } = await watch('/tmp/flat');
  await sandbox.files.write('/tmp/flat/a.txt', 'one');
  await sees('create', 'a.txt');
  await sees('write', 'a.txt');
  await sandbox.commands.run('chmod 600 /tmp/flat/a.txt');
  await sees('chmod', 'a.txt');
  await sandbox.files.rename('/tmp/flat/a.txt', '/tmp/flat/b.txt');
  await sees('rename', 'a.txt');
  await sees('create', 'b.txt');
  await sandbox.files.remove('/tmp/flat/b.txt');
  await sees('remove', 'b.txt');
  assert.ok(events.every((event) => event.entry === undefined), 'entries only when asked for');
  await handle.stop();
});

test('nothing from below unless asked', async () => {
  const { handle, events, sees } = await watch('/tmp/shallow');
  await sandbox.files.makeDir('/tmp/shallow/sub');
  await sees('create', 'sub');
  await sandbox.files.write('/tmp/shallow/sub/inner', 'x');
  await sandbox.files.write('/tmp/shallow/after', 'x');
  await sees('create', 'after');
  assert.ok(!events.some((event) => event.name.includes('inner')));
  await handle.stop();
});

test('recursive, with entries, also folders that come later', async () => {
  const { handle, sees } = await watch('/tmp/deep', { recursive: true, includeEntry: true });
  await sandbox.files.makeDir('/tmp/deep/sub');
  await sees('create', 'sub');
  await sandbox.files.write('/tmp/deep/sub/f.txt', 'hello');
  await until(async () => {
    const event = await sees('write', 'sub/f.txt');
    return event.entry.path === '/tmp/deep/sub/f.txt' && event.entry.type === 'file';
  }, 'an entry');
  await sandbox.commands.run('mkdir -p /tmp/deep/x/y/z && sleep 0.2 && echo > /tmp/deep/x/y/z/last');
  await sees('create', 'x/y/z/last');
  await sandbox.files.remove('/tmp/deep/sub/f.txt');
  const removed = await sees('remove', 'sub/f.txt');
  assert.equal(removed.entry, undefined);
  await handle.stop();
});

test('stop ends it, and says so without an error', async () => {
  let exited;
  const { handle, events } = await watch('/tmp/stopped', { onExit: (err) => { exited = { err }; } });
  await handle.stop();
  await until(() => exited, 'onExit');
  const count = events.length;
  await sandbox.files.write('/tmp/stopped/x', 'x');
  assert.equal(events.length, count);
});

test('its time-out ends it', async () => {
  let exited;
  await watch('/tmp/short', { timeoutMs: 500, onExit: (err) => { exited = { err }; } });
  await until(() => exited, 'onExit');
  assert.equal(exited.err?.name, 'TimeoutError');
});

test('what cannot be watched', async () => {
  await assert.rejects(sandbox.files.watchDir('/no/such', () => {}), error('FileNotFoundError'));
  await sandbox.files.write('/tmp/a-file', '');
  await assert.rejects(sandbox.files.watchDir('/tmp/a-file', () => {}), error('InvalidArgumentError'));
});
