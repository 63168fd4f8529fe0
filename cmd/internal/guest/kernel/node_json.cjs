'use strict';
// JSON of JavaScript values, as text: bigints keep their digits, dates, maps and sets
// have a form, and what JSON has no number for (NaN, Infinity) is null. The code may
// replace any global; this file keeps the ones it needs.

const { types } = require('util');
const { Array, Buffer, Date, JSON, Map, Number, Object, Set } = globalThis;

const MAX_DEPTH = 250;

class NoForm extends Error {}
class TooLarge extends Error {}

// The JSON of a value; undefined if JSON cannot represent it, null if it is larger
// than about limit characters.
function jsonOf(value, limit) {
  const room = { left: limit };
  try {
    return write(value, room, 0);
  } catch (e) {
    return e instanceof TooLarge ? null : undefined; // or a getter of the code's failed
  }
}

function take(room, n) {
  if ((room.left -= n) < 0) throw new TooLarge();
}

function write(value, room, depth) {
  if (depth > MAX_DEPTH) throw new NoForm();
  take(room, 2);
  switch (typeof value) {
    case 'string':
      take(room, value.length);
      return JSON.stringify(value);
    case 'number':
      return Number.isFinite(value) ? JSON.stringify(value) : 'null';
    case 'bigint':
      return `${value}`;
    case 'boolean':
      return value ? 'true' : 'false';
    case 'undefined':
      return 'null';
    case 'object':
      break;
    default:
      throw new NoForm();
  }
  if (value === null) return 'null';
  if (types.isProxy(value)) throw new NoForm();
  const list = (items) => '[' + Array.from(items, (v) => write(v, room, depth + 1)).join(',') + ']';
  if (Array.isArray(value)) {
    take(room, value.length);
    return list(value);
  }
  if (types.isDate(value)) return JSON.stringify(Date.prototype.toJSON.call(value));
  if (types.isSet(value)) return list(Set.prototype.values.call(value));
  if (types.isMap(value)) {
    const pairs = [...Map.prototype.entries.call(value)];
    if (pairs.every(([k]) => typeof k === 'string')) return object(pairs, room, depth);
    return list(pairs);
  }
  if (types.isTypedArray(value) && !Buffer.isBuffer(value)) {
    take(room, value.length);
    return list(value);
  }
  const proto = Object.getPrototypeOf(value);
  if ((proto !== null && proto !== Object.prototype) || Object.getOwnPropertySymbols(value).length) throw new NoForm();
  const pairs = [];
  for (const [key, d] of Object.entries(Object.getOwnPropertyDescriptors(value))) {
    if (d.get || d.set) throw new NoForm();
    if (d.enumerable && d.value !== undefined) pairs.push([key, d.value]);
  }
  return object(pairs, room, depth);
}

function object(pairs, room, depth) {
  return '{' + pairs.map(([key, v]) => write(key, room, depth) + ':' + write(v, room, depth + 1)).join(',') + '}';
}

module.exports = { jsonOf };
