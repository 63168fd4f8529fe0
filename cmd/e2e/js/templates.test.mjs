// The templates that a server has, by the packages' own calls.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox, core, error } from './helpers.mjs';

const { Template } = core;
// Newer packages say "exists", older ones "aliasExists".
const exists = (name) => (Template.exists ?? Template.aliasExists).call(Template, name);

test('those there are exist, with and without a tag, and others do not', async () => {
  for (const name of ['base', 'code-interpreter-v1', 'base:latest', 'base:default']) assert.equal(await exists(name), true, name);
  for (const name of ['mine', 'team/mine', 'base:v9', 'BASE']) assert.equal(await exists(name), false, name);
});

test('they have the one tag that there is', async (t) => {
  if (!Template.getTags) return t.skip('these packages know no tags');
  const tags = await Template.getTags('base');
  assert.deepEqual(tags.map((tag) => tag.tag), ['default']);
  assert.ok(tags[0].createdAt instanceof Date);
  await assert.rejects(Template.getTags('mine'), error('TemplateError', /mine/));
});

test('a snapshot that never was cannot be deleted, and that is no error', async (t) => {
  if (!Sandbox.deleteSnapshot) return t.skip('these packages know no snapshots');
  assert.equal(await Sandbox.deleteSnapshot('mine:default'), false);
});
