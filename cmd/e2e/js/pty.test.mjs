// A terminal: create, type, resize, connect, kill.
import assert from 'node:assert/strict';
import { test, before } from 'node:test';
import { create, error, until } from './helpers.mjs';

let sandbox;
before(async () => {
  sandbox = await create({ envs: { PLACE: 'sandbox' } });
});

/** Opens a terminal and gathers what it shows. */
async function open(opts = {}) {
  const screen = { text: '' };
  const decoder = new TextDecoder();
  const handle = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => { screen.text += decoder.decode(data, { stream: true }); }, ...opts });
  const type = (text) => sandbox.pty.sendInput(handle.pid, new TextEncoder().encode(text));
  const shows = (pattern) => until(() => pattern.test(screen.text), `the screen to show ${pattern}; it shows ${JSON.stringify(screen.text)}`);
  return { handle, screen, type, shows };
}

test('a shell in a terminal of the size asked for', async () => {
  const { handle, type, shows } = await open();
  await type('stty size; tty -s && echo is-a-$((40+2))-tty; echo $TERM $LANG $LC_ALL; whoami; pwd\n');
  await shows(/\b24 80\b/);
  await shows(/is-a-42-tty/);
  await shows(/xterm-256color C\.UTF-8 C\.UTF-8/);
  await shows(/\/home\/user/);
  await sandbox.pty.resize(handle.pid, { cols: 132, rows: 43 });
  await type('stty size\n');
  await shows(/\b43 132\b/);
  await type('exit 0\n');
  assert.equal((await handle.wait()).exitCode, 0);
});

test('user, folder and environment', async () => {
  const { handle, type, shows } = await open({ user: 'root', cwd: '/tmp', envs: { MINE: 'here', TERM: 'vt100' } });
  await type('echo "<$(id -u)|$PWD|$MINE|$PLACE|$TERM>"\n');
  await shows(/<0\|\/tmp\|here\|sandbox\|vt100>/);
  await handle.kill();
});

test('control characters reach the program in front', async () => {
  const { handle, type, shows } = await open();
  await type('sleep 999; echo status-$?-\n');
  await until(async () => (await sandbox.commands.run('pgrep -x sleep || true')).stdout.trim(), 'sleep to run');
  await type('\x03');
  await type('echo back-$((1+1))\n');
  await shows(/back-2/);
  await handle.kill();
});

test('a second client sees the same terminal', async () => {
  const { handle, type } = await open();
  let seen = '';
  const second = await sandbox.pty.connect(handle.pid, { timeoutMs: 0, onData: (data) => { seen += new TextDecoder().decode(data); } });
  assert.equal(second.pid, handle.pid);
  await handle.disconnect();
  await type('echo for-the-$((1+1))nd\n');
  await until(() => seen.includes('for-the-2nd'), 'the second client to see it');
  assert.equal(await sandbox.pty.kill(handle.pid), true);
  await assert.rejects(second.wait(), error('CommandExitError'));
});

test('kill, and what is gone', async () => {
  const { handle } = await open();
  assert.equal(await handle.kill(), true);
  const err = await handle.wait().catch((err) => err);
  assert.equal(err.name, 'CommandExitError');
  assert.equal(err.exitCode, -1);
  await until(async () => (await sandbox.pty.kill(handle.pid)) === false, 'kill to find nothing');
  await assert.rejects(sandbox.pty.resize(999_999, { cols: 1, rows: 1 }), error('NotFoundError'));
  await assert.rejects(sandbox.pty.sendInput(999_999, new Uint8Array([1])), error('NotFoundError'));
});

test('ends at its time-out', async () => {
  const { handle } = await open({ timeoutMs: 1_000 });
  await assert.rejects(handle.wait(), error('TimeoutError'));
});

test('a terminal carries much, in order', async () => {
  const { handle, screen, type, shows } = await open({ cols: 200 });
  await type('stty -echo; seq 20000; echo over-$((1+1))\n');
  await shows(/over-2/);
  const numbers = screen.text.replace(/\x1b\[[?0-9;]*[a-zA-Z]/g, '').split(/[\r\n]+/).filter((line) => /^\d+$/.test(line)).map(Number);
  assert.deepEqual(numbers, Array.from({ length: 20000 }, (_, i) => i + 1));
  await handle.kill();
});
