// Both packages by host names that resolve nowhere, with the server as proxy: the
// option `proxy` is for the control plane and for envd, by CONNECT. Code runs by
// the global fetch, for which Node's way is a global dispatcher.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { Sandbox, error, generation, serverURL, until } from './helpers.mjs';

const { EnvHttpProxyAgent, setGlobalDispatcher, getGlobalDispatcher } = createRequire(new URL(`../${generation}/package.json`, import.meta.url))('undici');

// A server that was told its domain knows its own names. Another one knows its
// port alone: its URLs must have that.
const domain = process.env.CUBBY_DOMAIN || 'sandboxes.example.test';
const port = process.env.CUBBY_DOMAIN ? '' : `:${new URL(serverURL).port}`;

test('everything of both packages by host names', async () => {
  const before = getGlobalDispatcher();
  const create = { apiUrl: `http://api.${domain}${port}`, sandboxUrl: `http://sandbox.${domain}${port}`, proxy: serverURL, domain };
  const first = await Sandbox.create(create);
  const named = { ...create, sandboxUrl: `http://49983-${first.sandboxId}.${domain}` };
  const sandbox = await Sandbox.connect(first.sandboxId, named);
  setGlobalDispatcher(new EnvHttpProxyAgent({ httpProxy: serverURL, httpsProxy: serverURL }));
  try {
    assert.match(sandbox.getHost(3000), new RegExp(`^3000-${sandbox.sandboxId}\\.`));
    assert.equal((await sandbox.commands.run('echo by name')).stdout, 'by name\n');
    await sandbox.files.write('named.txt', 'name');
    assert.equal(await sandbox.files.read('named.txt'), 'name');
    let seen = false;
    const watch = await sandbox.files.watchDir('/tmp', () => { seen = true; }, { timeoutMs: 0 });
    await sandbox.files.write('/tmp/x', 'x');
    await until(() => seen, 'an event');
    await watch.stop();
    const screen = [];
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => { screen.push(Buffer.from(data)); }, timeoutMs: 0 });
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((6*7))\n'));
    await until(() => Buffer.concat(screen).includes('42'), 'the terminal');
    await terminal.kill();
    const code = await Sandbox.connect(first.sandboxId, { ...create, sandboxUrl: `http://49999-${first.sandboxId}.${domain}` });
    assert.equal((await code.runCode('6*7')).text, '42');
    assert.ok((await code.listCodeContexts()).length >= 2);
    assert.equal(await (await fetch(await sandbox.downloadUrl('named.txt'))).text(), 'name');
    assert.equal((await sandbox.getInfo()).state, 'running');
    assert.ok((await Sandbox.list(create).nextItems()).some((info) => info.sandboxId === first.sandboxId));
    assert.equal(await sandbox.kill(), true);
    await assert.rejects(sandbox.commands.run('true'), error('SandboxNotFoundError'));
  } finally {
    setGlobalDispatcher(before);
    await first.kill();
  }
});
