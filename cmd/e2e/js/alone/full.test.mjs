// A server that has no room for another sandbox. It was started for two.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox, create, error, generation } from '../helpers.mjs';

test('a full server says so, and takes the next one when there is room', async () => {
  const first = await create();
  const second = await create();
  // The newest packages wait as long as Retry-After says, three times.
  await assert.rejects(Sandbox.create(generation === 'new' ? { retries: 1 } : {}), error('RateLimitError', /[Rr]ate limit/));
  if (generation === 'new') {
    const waiting = Sandbox.create({ retries: 3 });
    await first.kill();
    const third = await waiting;
    assert.equal((await third.commands.run('echo in')).stdout, 'in\n');
    await third.kill();
  } else {
    await first.kill();
    const third = await Sandbox.create();
    assert.equal((await third.commands.run('echo in')).stdout, 'in\n');
    await third.kill();
  }
  assert.equal((await second.commands.run('echo unharmed')).stdout, 'unharmed\n');
});
