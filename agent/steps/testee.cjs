// Makes each call of a test in a fresh context in which the code is defined.
"use strict";
const vm = require("vm");
const util = require("util");
const { Writable } = require("stream");
const { Console } = require("console");
const job = JSON.parse(require("fs").readFileSync(0, "utf8"));
const { own, cases } = job;
const stdout = 1;

class Large extends Error {}

function tell(line) {
  const data = Buffer.from("\n" + own + JSON.stringify(line) + "\n");
  for (let at = 0; at < data.length; ) {
    try {
      at += require("fs").writeSync(stdout, data, at);
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
    }
  }
}

function encode(x, room, depth = 0) {
  room.left -= 12;
  if (room.left < 0 || depth > 50) throw new Large();
  const text = (k, v) => {
    room.left -= v.length;
    if (room.left < 0) throw new Large();
    return { k, v };
  };
  const items = (k, all) => {
    const v = [];
    for (const y of all) v.push(encode(y, room, depth + 1));
    return { k, v };
  };
  const pairs = (all) => {
    const v = [];
    for (const [key, y] of all) v.push([encode(key, room, depth + 1), encode(y, room, depth + 1)]);
    return { k: "dict", v };
  };
  switch (typeof x) {
    case "undefined":
      return { k: "none" };
    case "boolean":
      return { k: "bool", v: x };
    case "bigint":
      return text("int", String(x));
    case "number":
      if (Number.isNaN(x)) return { k: "float", v: "nan" };
      if (!Number.isFinite(x)) return { k: "float", v: x > 0 ? "inf" : "-inf" };
      return { k: "float", v: String(x) };
    case "string":
      return text("str", x);
    case "object":
      if (x === null) return { k: "none" };
      if (Array.isArray(x) || (util.types.isTypedArray(x) && !Buffer.isBuffer(x))) return items("list", Array.from(x));
      if (util.types.isSet(x)) return items("set", x);
      if (util.types.isMap(x)) return pairs(x);
      if (Buffer.isBuffer(x)) return text("bytes", x.toString("base64"));
      if (Object.prototype.toString.call(x) === "[object Object]") return pairs(Object.entries(x));
  }
  return { ...text("other", util.inspect(x).slice(0, 10000)), s: String(x).slice(0, 10000) };
}

function failure(e) {
  const type = String((e && e.name) || "Error");
  const message = String((e && e.message !== undefined ? e.message : e) ?? "").slice(0, 2000);
  const at = /code\.js:(\d+)/.exec(String((e && e.stack) || ""));
  return { type, message, line: at ? Number(at[1]) : 0 };
}

const builtin = new Set(vm.runInNewContext("Object.getOwnPropertyNames(globalThis)"));
const silent = new Console(new Writable({ write: (_piece, _encoding, done) => done() }));

// define returns a fresh context that has the code.
function define() {
  const module = { exports: {} };
  const space = { module, exports: module.exports, require: require("module").createRequire(process.cwd() + "/") };
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    if (builtin.has(name) || name in space || name === "global" || name === "globalThis") continue;
    try {
      space[name] = globalThis[name];
    } catch {}
  }
  space.console = silent;
  vm.createContext(space);
  space.global = vm.runInContext("globalThis", space);
  vm.runInContext(job.code, space, { filename: "code.js" });
  return space;
}

let current = -1;
let answered = false;
function answer(line) {
  if (!answered) tell({ i: current, ...line });
  answered = true;
}

process.on("uncaughtException", (e) => current >= 0 && answer({ error: failure(e) }));
process.on("unhandledRejection", () => {});
// A promise that nothing will ever resolve is a call that never ends.
setInterval(() => {}, 1 << 30);

async function main() {
  cases.forEach((c, i) => {
    if (c.literal === undefined) return;
    try {
      tell({ i, literal: encode(vm.runInNewContext("(" + c.literal + "\n)", {}, { timeout: 1000 }), { left: job.budget }) });
    } catch (e) {
      tell({ i, no_literal: String(e) });
    }
  });
  let space;
  try {
    space = define();
  } catch (e) {
    tell({ setup_error: failure(e) });
    return;
  }
  tell({ ready: true });
  for (let i = job.start; i < cases.length; i++) {
    current = i;
    answered = false;
    const began = process.hrtime.bigint();
    const seconds = () => Number(process.hrtime.bigint() - began) / 1e9;
    try {
      space = space || define();
      const x = await vm.runInContext("(" + cases[i].call.trim().replace(/;+$/, "") + "\n)", space, { filename: "call.js" });
      const took = seconds();
      let value;
      try {
        value = encode(x, { left: job.budget });
      } catch (e) {
        value = { k: "large" };
      }
      answer({ value, text: util.inspect(x, { depth: 8 }).slice(0, 2000), seconds: took });
    } catch (e) {
      answer({ error: failure(e), seconds: seconds() });
    }
    space = null;
    tell({ i, end: true });
  }
}

main().finally(() => process.exit(0));
