// A sandbox of a server that was restarted since. Its client has what a create
// answers, and never spoke to this server: CUBBY_ENDED is the sandbox's id,
// CUBBY_TOKEN its access token, CUBBY_WHY what its record says.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox, error } from '../helpers.mjs';

const { CUBBY_ENDED: sandboxId, CUBBY_TOKEN: token, CUBBY_WHY: why } = process.env;
const client = (envdAccessToken) => new Sandbox({ sandboxId, envdVersion: '0.6.13', envdAccessToken });

test('who has its token is told why it ended', async () => {
  const sandbox = client(token);
  const ended = error('TimeoutError', new RegExp(`${sandboxId} ended at .*: ${why}`));
  assert.equal(await sandbox.isRunning(), false);
  await assert.rejects(sandbox.files.read('x'), ended);
  await assert.rejects(sandbox.runCode('1'), ended);
});

test('who has another is not', async () => {
  const sandbox = client(token.replace(/.$/, (last) => (last === '0' ? '1' : '0')));
  await assert.rejects(sandbox.files.read('x'), (err) => err.name === 'TimeoutError' && !err.message.includes('ended at'));
});
