// What every test here shares: the packages under test, sandboxes that are
// killed at the end, and waiting without guessing how long something takes.
//
// The Go driver (../e2e_test.go) sets the environment:
//   E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY  as `cubby serve` prints them
//   CUBBY_GENERATION  "new" or "old": which packages
//   CUBBY_SECURE      "false": ask for sandboxes without an access token, which
//                     only the old packages can
import { after } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';

export const generation = process.env.CUBBY_GENERATION ?? 'new';
export const secure = process.env.CUBBY_SECURE !== 'false';
export const serverURL = process.env.E2B_API_URL;

export const { core, interpreter } = await import(`../${generation}/sdk.mjs`);
export const { Sandbox } = interpreter;

const alive = new Set();

/** Creates a sandbox, of a template or the package's own, that is killed when the file's tests are over. */
export async function create(opts = {}, ...template) {
  const sandbox = await Sandbox.create(...template, { ...(secure ? {} : { secure: false }), timeoutMs: 300_000, ...opts });
  alive.add(sandbox.sandboxId);
  return sandbox;
}

after(async () => {
  await Promise.all([...alive].map((id) => Sandbox.kill(id)));
});

/** Waits until check returns something true and returns that. */
export async function until(check, what, ms = 60_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const got = await check();
    if (got) return got;
    if (Date.now() > deadline) throw new Error(`waited ${ms} ms in vain: ${what}`);
    await pause(50);
  }
}

/** A validator for assert.rejects: the SDK's class by name, and what it says. */
export function error(name, says = /(?:)/) {
  return (err) => {
    if (err?.name === name && says.test(err.message)) return true;
    throw new Error(`want ${name} that says ${says}, got ${err?.name}: ${err?.message}`, { cause: err });
  };
}

/** The headers that route a plain request to a port of a sandbox. */
export function routed(sandbox, port) {
  return { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port) };
}
