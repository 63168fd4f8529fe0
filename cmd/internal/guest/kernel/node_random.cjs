'use strict';
// Random numbers in a copy of a sandbox. The memory of a copy is its source's, and so
// are the states of V8's generator and of OpenSSL's, which Node has no way to seed: what
// was random would be drawn twice. From a copy on both are replaced by the generator of
// the sandbox's kernel.
//
// What is not: Math.random where code took it out of Math before the copy, and what Node
// draws below JavaScript: keys, primes, TLS. Before Node 15, nothing of crypto.

const { openSync, readSync, closeSync } = require('fs');
const { process, ArrayBuffer, DataView, Math, Object, Uint8Array } = globalThis;
const { moduleLoadList } = process;

let copied = false;

// Fills size bytes of an ArrayBuffer or a view of one. It keeps nothing: bytes that were
// drawn ahead would be the same in the next copy, and a descriptor the code could close.
function fill(target, offset, size) {
  const view = ArrayBuffer.isView(target)
    ? new Uint8Array(target.buffer, target.byteOffset + offset, size)
    : new Uint8Array(target, offset, size);
  const fd = openSync('/dev/urandom', 'r');
  try {
    for (let at = 0; at < size; ) at += readSync(fd, view, at, size - at, null);
  } finally {
    closeSync(fd);
  }
}

// Everything that crypto draws in JavaScript goes through one class of Node's, which it
// has taken when it is loaded: so this stands in its place before.
function replaceJob() {
  const { emitWarning } = process;
  let binding;
  try {
    process.emitWarning = () => {}; // that the module is for tests
    binding = require('internal/test/binding').internalBinding('crypto');
  } catch (e) {
    return;
  } finally {
    process.emitWarning = emitWarning;
  }
  const Native = binding.RandomBytesJob;
  if (typeof Native !== 'function') return;
  binding.RandomBytesJob = class RandomBytesJob extends Native {
    #target;
    constructor(mode, target, offset, size) {
      super(mode, target, offset, size);
      this.#target = [target, offset, size];
    }
    run() {
      const { ondone } = this;
      if (ondone) {
        // The copy may be made while it is under way.
        this.ondone = (err, ...rest) => {
          if (!err && copied) {
            try {
              fill(...this.#target);
            } catch (e) {
              err = e;
            }
          }
          return ondone.call(this, err, ...rest);
        };
        return super.run();
      }
      const result = super.run();
      if (copied && !result[0]) fill(...this.#target);
      return result;
    }
  };
}
replaceJob();

// Math.random is called often, and its numbers are no secrets: they are drawn ahead.
const { random } = Math;
const pool = new DataView(new ArrayBuffer(4096));
let at = pool.byteLength;
const drawn = (() => {
  if (at === pool.byteLength) {
    fill(pool, 0, pool.byteLength);
    at = 0;
  }
  const [high, low] = [pool.getUint32(at), pool.getUint32(at + 4)];
  at += 8;
  return ((high >>> 5) * 0x4000000 + (low >>> 6)) / 0x20000000000000;
}).bind();
Object.defineProperty(drawn, 'name', { value: 'random', configurable: true });

// Draws anew. It may be called any number of times.
function drawAnew() {
  copied = true;
  at = pool.byteLength;
  if (Math.random === random) Math.random = drawn;
  if (!moduleLoadList.includes('NativeModule internal/crypto/random')) return;
  // It draws ahead for randomInt and randomUUID: use that up.
  const { randomInt, randomUUID } = require('internal/crypto/random');
  for (let i = 0; i < 1024; i++) randomInt(2 ** 48 - 1);
  for (let i = 0; randomUUID && i < 128; i++) randomUUID();
}

module.exports = { drawAnew };
