// Programs: run, background, stdin, signals, users, environments, time-outs.
import assert from 'node:assert/strict';
import { test, describe, before } from 'node:test';
import { create, error, until } from './helpers.mjs';

let sandbox;
before(async () => {
  sandbox = await create({ envs: { PLACE: 'sandbox', ONLY_SANDBOX: '1' } });
});

describe('run', () => {
  test('returns what was printed, apart', async () => {
    const result = await sandbox.commands.run('echo out; echo err >&2');
    assert.equal(result.exitCode, 0);
    assert.equal(result.stdout, 'out\n');
    assert.equal(result.stderr, 'err\n');
  });

  test('throws what the SDK has for an exit code', async () => {
    const err = await sandbox.commands.run('echo some; echo why >&2; exit 7').catch((err) => err);
    assert.equal(err.name, 'CommandExitError');
    assert.equal(err.exitCode, 7);
    assert.equal(err.stdout, 'some\n');
    assert.equal(err.stderr, 'why\n');
    assert.equal(err.error, 'exit status 7');
  });

  test('a command that is not there is 127', async () => {
    const err = await sandbox.commands.run('no-such-command-at-all').catch((err) => err);
    assert.equal(err.exitCode, 127);
    assert.match(err.stderr, /no-such-command-at-all/);
  });

  test('is user in /home/user, by a login shell', async () => {
    const { stdout } = await sandbox.commands.run('whoami; pwd; echo $HOME $USER $LOGNAME; shopt -q login_shell && echo login');
    assert.equal(stdout, 'user\n/home/user\n/home/user user user\nlogin\n');
  });

  test('is root when asked, in the template\'s folder all the same', async () => {
    const { stdout } = await sandbox.commands.run('id -u; pwd; echo $HOME', { user: 'root' });
    assert.equal(stdout, '0\n/home/user\n/root\n');
  });

  test('user becomes root without a password', async () => {
    assert.equal((await sandbox.commands.run('sudo whoami')).stdout, 'root\n');
    assert.equal((await sandbox.commands.run('sudo -n -u user id -un')).stdout, 'user\n');
  });

  test('refuses a user who is not there', async () => {
    await assert.rejects(sandbox.commands.run('true', { user: 'nobody-here' }), error('AuthenticationError', /invalid username: 'nobody-here'/));
  });

  test('environment: the command\'s own wins over the sandbox\'s', async () => {
    const { stdout } = await sandbox.commands.run('echo $PLACE $ONLY_SANDBOX $MINE', { envs: { PLACE: 'command', MINE: 'a b' } });
    assert.equal(stdout, 'command 1 a b\n');
  });

  test('works where it is told to', async () => {
    assert.equal((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n');
    await assert.rejects(sandbox.commands.run('pwd', { cwd: '/no/such/place' }), error('InvalidArgumentError', /\/no\/such\/place.*does not exist/));
  });

  test('has no input unless asked', async () => {
    assert.equal((await sandbox.commands.run('cat; echo done')).stdout, 'done\n');
  });

  test('streams while it runs', async () => {
    const seen = [];
    const release = [];
    const result = await sandbox.commands.run('echo one; while [ ! -e /tmp/go-on ]; do sleep 0.05; done; echo two >&2; echo three', {
      onStdout: (text) => {
        seen.push(text);
        if (text.includes('one')) release.push(sandbox.files.write('/tmp/go-on', ''));
      },
      onStderr: (text) => { seen.push(`err:${text}`); },
    });
    await Promise.all(release);
    assert.equal(release.length, 1, 'the first line came before the end');
    assert.equal(result.stdout, 'one\nthree\n');
    assert.ok(seen.includes('err:two\n'));
  });

  test('carries megabytes, whole', async () => {
    const result = await sandbox.commands.run('head -c 8000000 /dev/zero | tr "\\0" x');
    assert.equal(result.stdout.length, 8_000_000);
    assert.equal(result.stdout.replaceAll('x', ''), '');
  });

  test('carries text that is not ASCII, in pieces', async () => {
    const result = await sandbox.commands.run('for i in $(seq 2000); do printf "žluťoučký🐻"; done');
    assert.equal(result.stdout, 'žluťoučký🐻'.repeat(2000));
  });

  test('takes a long script', async () => {
    const word = 'y'.repeat(100_000);
    assert.equal((await sandbox.commands.run(`cat <<'END' | wc -c\n${word}\nEND`)).stdout.trim(), '100001');
  });

  test('ends at its time-out, and so does the program', async () => {
    await assert.rejects(sandbox.commands.run('sleep 98765', { timeoutMs: 700 }), error('TimeoutError', /timeoutMs/));
    await until(async () => !(await sandbox.commands.list()).some((p) => p.args.join(' ').includes('98765')), 'the program to be killed');
  });

  test('no time-out is no time-out', async () => {
    assert.equal((await sandbox.commands.run('sleep 0.3; echo fine', { timeoutMs: 0 })).stdout, 'fine\n');
  });

  test('can be abandoned by a signal', async () => {
    const controller = new AbortController();
    const running = sandbox.commands.run('echo begun; sleep 600', { signal: controller.signal, onStdout: () => controller.abort() });
    await assert.rejects(running);
    assert.equal((await sandbox.commands.run('echo still here')).stdout, 'still here\n');
  });
});

describe('background', () => {
  test('list, kill, and what the handle says then', async () => {
    const handle = await sandbox.commands.run('sleep 4321', { background: true, envs: { TAGGED: 'yes' }, cwd: '/tmp' });
    assert.ok(handle.pid > 0);
    const info = (await sandbox.commands.list()).find((p) => p.pid === handle.pid);
    assert.equal(info.cmd, '/bin/bash');
    assert.deepEqual(info.args, ['-l', '-c', 'sleep 4321']);
    assert.equal(info.envs.TAGGED, 'yes');
    assert.equal(info.cwd, '/tmp');
    assert.equal(await sandbox.commands.kill(handle.pid), true);
    const err = await handle.wait().catch((err) => err);
    assert.equal(err.name, 'CommandExitError');
    assert.equal(err.exitCode, -1);
    assert.equal(err.error, 'signal: killed');
    await until(async () => !(await sandbox.commands.list()).some((p) => p.pid === handle.pid), 'the list to be without it');
    assert.equal(await sandbox.commands.kill(handle.pid), false);
  });

  test('the handle kills, too', async () => {
    const handle = await sandbox.commands.run('sleep 4322', { background: true });
    assert.equal(await handle.kill(), true);
    await assert.rejects(handle.wait(), error('CommandExitError'));
  });

  test('wait, with output gathered on the way', async () => {
    let seen = '';
    const handle = await sandbox.commands.run('for i in 1 2 3; do echo $i; done; exit 2', { background: true, onStdout: (text) => { seen += text; } });
    const err = await handle.wait().catch((err) => err);
    assert.equal(err.exitCode, 2);
    assert.equal(handle.exitCode, 2);
    assert.equal(handle.stdout, '1\n2\n3\n');
    assert.equal(seen, '1\n2\n3\n');
  });

  test('stdin: send by the handle and by pid, close', async () => {
    const handle = await sandbox.commands.run('cat; echo end', { background: true, stdin: true });
    await handle.sendStdin('by handle\n');
    await sandbox.commands.sendStdin(handle.pid, 'by pid\n');
    await sandbox.commands.sendStdin(handle.pid, new TextEncoder().encode('bytes\n'));
    await sandbox.commands.closeStdin(handle.pid);
    assert.equal((await handle.wait()).stdout, 'by handle\nby pid\nbytes\nend\n');
  });

  test('stdin: closed by the handle', async () => {
    const handle = await sandbox.commands.run('wc -c', { background: true, stdin: true });
    await handle.sendStdin('x'.repeat(200_000));
    await handle.closeStdin();
    assert.equal((await handle.wait()).stdout.trim(), '200000');
  });

  test('stdin of a program that takes none is an error', async () => {
    const handle = await sandbox.commands.run('sleep 4323', { background: true });
    await assert.rejects(handle.sendStdin('no'), error('SandboxError'));
    await handle.kill();
    await assert.rejects(sandbox.commands.sendStdin(999_999, 'no'), error('NotFoundError', /999999/));
  });

  test('a second handle sees what follows, and the first may go', async () => {
    const first = await sandbox.commands.run('read line; echo "got $line"; exit 5', { background: true, stdin: true });
    let seen = '';
    const second = await sandbox.commands.connect(first.pid, { onStdout: (text) => { seen += text; } });
    assert.equal(second.pid, first.pid);
    await first.disconnect();
    await second.sendStdin('it\n');
    const err = await second.wait().catch((err) => err);
    assert.equal(err.exitCode, 5);
    assert.equal(seen, 'got it\n');
  });

  test('connect to a program that ended a moment ago gives its end', async () => {
    const handle = await sandbox.commands.run('exit 9', { background: true });
    await handle.wait().catch(() => {});
    const late = await sandbox.commands.connect(handle.pid);
    const err = await late.wait().catch((err) => err);
    assert.equal(err.exitCode, 9);
  });

  test('connect to what never was', async () => {
    await assert.rejects(sandbox.commands.connect(999_998), error('NotFoundError', /999998 not found/));
  });

  test('a program outlives the handle that started it', async () => {
    const handle = await sandbox.commands.run('sleep 1; echo alive > /tmp/outlived', { background: true });
    await handle.disconnect();
    await until(() => sandbox.files.exists('/tmp/outlived'), 'the file of a program without a client');
  });
});

test('many at once', async () => {
  const lines = Array.from({ length: 50 }, (_, i) => String(i + 1)).join('\n') + '\n';
  const results = await Promise.all(Array.from({ length: 40 }, (_, i) => sandbox.commands.run(`seq 50; echo ${i} >&2`)));
  results.forEach((result, i) => {
    assert.equal(result.stdout, lines);
    assert.equal(result.stderr, `${i}\n`);
  });
});
