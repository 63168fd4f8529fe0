'use strict';
// The JavaScript kernel; kernel.go describes the wire. Cells run in Node's main
// context, so that `instanceof`, packages and process behave as in a program.
//
// node_rewrite.cjs makes a cell a script. Positions in stack traces are mapped back.
//
// SIGINT stops synchronous code, what follows an await that needs no event
// included, and waiting. One that comes when synchronous code is just ending, Node
// may lose (its thread that waits for signals is told to end first) or even die of.
// So the guest says on the wire first that a cell is to end, which stops waiting.
// Neither can stop a loop inside a callback of the event loop: nothing of ours runs
// then, and the guest ends the process.

const fs = require('fs');
const net = require('net');
const path = require('path');
const util = require('util');
const vm = require('vm');
const Module = require('module');
const EventEmitter = require('events');
const { Writable } = require('stream');
const { pathToFileURL } = require('url');
const { jsonOf } = require('./node_json.cjs');
const { rewrite } = require('./node_rewrite.cjs');
const { drawAnew } = require('./node_random.cjs');

// The code may replace any global; the kernel keeps the ones it needs.
const { process, Buffer, JSON, Object, Array, Map, Set, Error, Promise, String, Number, Math, Symbol, Atomics, Infinity } = globalThis;
const { setImmediate, clearImmediate, Int32Array, SharedArrayBuffer } = globalThis;

const MAX_RESULT = 32 << 20; // bytes of one MIME type of a result
const MAX_JSON = 1 << 20; // a larger value is shown as text alone
const MAX_ACK = 5000; // milliseconds, about, that a guest may take over a result
const MAX_LINE = 400; // characters of a source line in a syntax error

const { Timeout, Immediate } = (() => {
  const [t, i] = [setTimeout(() => {}, 0), setImmediate(() => {})];
  clearTimeout(t);
  clearImmediate(i);
  return { Timeout: t.constructor, Immediate: i.constructor };
})();

// Code that SIGINT stopped may leave entries on Node's stack of async ids, and Node
// aborts when it finds them. It clears the stack after uncaught errors, too.
const clearAsyncIds = (() => {
  try {
    return require('internal/async_hooks').clearAsyncIdStack || (() => {});
  } catch (e) {
    return () => {};
  }
})();

const nap = new Int32Array(new SharedArrayBuffer(4));

// Writes all of it before it returns: descriptors may be non-blocking, because a
// child shares them and can make them so.
function writeAll(fd, data) {
  const b = typeof data === 'string' ? Buffer.from(data, 'utf8') : data;
  for (let at = 0; at < b.length; ) {
    try {
      at += fs.writeSync(fd, b, at, b.length - at);
    } catch (e) {
      if (e.code !== 'EAGAIN') throw e;
      Atomics.wait(nap, 0, 0, 1);
    }
  }
}

// Node would make the pipes non-blocking for everybody who shares them, and lose
// what is left in its buffers at process.exit.
class Output extends Writable {
  constructor(fd) {
    super({ decodeStrings: true, emitClose: false, autoDestroy: false });
    this.fd = fd;
    this._type = 'pipe';
  }
  _write(chunk, encoding, callback) {
    try {
      writeAll(this.fd, chunk);
    } catch (e) {
      return callback(e);
    }
    callback();
  }
  _destroy(err, callback) {
    callback(err);
  }
}
for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
  const stream = new Output(fd);
  stream.on('error', () => {});
  Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
}

function send(event) {
  writeAll(3, JSON.stringify(event) + '\n');
}
// ---- Modules, as a file in the working directory would see them

const requires = new Map();
function here() {
  const dir = process.cwd();
  let r = requires.get(dir);
  if (!r) requires.set(dir, (r = Module.createRequire(path.join(dir, 'cell.js'))));
  return r;
}
const mainModule = new Module('<cell>');
mainModule.exports = {};
const cellRequire = Object.assign(function require(id) { return here()(id); }, {
  resolve: Object.assign((id, o) => here().resolve(id, o), { paths: (id) => here().resolve.paths(id) }),
  cache: Module._cache,
  extensions: Module._extensions,
  main: mainModule,
});
const defaultLoader = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
const importers = new Map();
async function cellImport(spec, options) {
  spec = String(spec);
  const dir = process.cwd();
  if (defaultLoader) {
    let f = importers.get(dir);
    if (!f) {
      f = vm.compileFunction('return import(s, o)', ['s', 'o'], { filename: path.join(dir, 'cell.js'), importModuleDynamically: defaultLoader });
      importers.set(dir, f);
    }
    return f(spec, options);
  }
  if (/^(node:|data:|file:)/.test(spec) || Module.builtinModules.includes(spec)) return import(spec);
  if (/^\.{0,2}\//.test(spec)) return import(pathToFileURL(path.resolve(dir, spec)).href);
  return import(pathToFileURL(here().resolve(spec)).href);
}
let programFile = ''; // of the cell that runs as a program
const meta = {
  get url() { return pathToFileURL(meta.filename).href; },
  get dirname() { return path.dirname(meta.filename); },
  get filename() { return programFile || path.join(process.cwd(), 'cell.js'); },
  resolve: (s) => (/^\.{0,2}\//.test(s) ? pathToFileURL(path.resolve(s)).href : pathToFileURL(here().resolve(s)).href),
};

// ---- Results

function inspect(value) {
  try {
    return typeof value === 'string' ? util.inspect(value, { maxStringLength: Infinity }) : util.inspect(value);
  } catch (e) {
    return Object.prototype.toString.call(value);
  }
}

// Text that is already JSON; null stands for a value that is too large.
class Raw {
  constructor(json) {
    this.json = json;
  }
}

const RICH = {
  _toHtml: 'text/html',
  _toSvg: 'image/svg+xml',
  _toPng: 'image/png',
  _toJpeg: 'image/jpeg',
  _toMarkdown: 'text/markdown',
  _toLatex: 'text/latex',
};

const isObject = (v) => (typeof v === 'object' && v !== null) || typeof v === 'function';

async function bundle(value) {
  const data = plainBundle(value);
  if (!isObject(value) || util.types.isProxy(value)) return data;
  const show = value[Symbol.for('Jupyter.display')];
  if (typeof show === 'function') return Object.assign(data, await show.call(value));
  return data;
}

function plainBundle(value) {
  const data = { 'text/plain': isError(value) ? traceback(value) : inspect(value) };
  if (!isObject(value) || util.types.isProxy(value)) return data;
  for (const [key, mime] of Object.entries(RICH)) {
    const v = typeof value[key] === 'function' ? value[key]() : value[key];
    if (typeof v === 'string') data[mime] = v;
    else if (Buffer.isBuffer(v)) data[mime] = v.toString('base64');
  }
  const mimes = typeof value._toMime === 'function' ? value._toMime() : value._toMime;
  if (isObject(mimes)) Object.assign(data, mimes);
  if (Buffer.isBuffer(value) && value.length > 8) {
    if (value.readUInt32BE(0) === 0x89504e47) data['image/png'] = value.toString('base64');
    else if (value.readUInt32BE(0) >>> 8 === 0xffd8ff) data['image/jpeg'] = value.toString('base64');
  }
  const json = isError(value) || util.types.isDate(value) ? undefined : jsonOf(value, MAX_JSON);
  if (json !== undefined) data['application/json'] = new Raw(json);
  return data;
}

function sendResult(main, data) {
  const out = [];
  const leftOut = []; // forms that are too large
  for (const [mime, v] of Object.entries(data)) {
    if (v === undefined) continue;
    const text = typeof v === 'string' ? v : v instanceof Raw ? v.json : jsonOf(v, MAX_RESULT);
    if (text === undefined) continue;
    const whole = text !== null && (text.length <= MAX_RESULT / 4 || Buffer.byteLength(text) <= MAX_RESULT);
    if (!whole && (text === null || mime !== 'text/plain')) {
      leftOut.push(mime);
      continue;
    }
    const kept = whole ? text : text.slice(0, MAX_RESULT / 4) + '...';
    out.push(JSON.stringify(mime) + ':' + (typeof v === 'string' ? JSON.stringify(kept) : kept));
  }
  const head = JSON.stringify({ ev: 'result', id: cell ? cell.id : 0, main, left_out: leftOut.length ? leftOut : undefined });
  writeAll(3, `${head.slice(0, -1)},"data":{${out.join(',')}}}\n`);
  if (!main && cell && cell.ack) awaitAck();
}

// Waits until the guest has taken a result, so that text which is printed next does
// not overtake it.
// Nothing but an interrupt or 'anew' can come meanwhile: the guest sends one request at
// a time.
function awaitAck() {
  const byte = Buffer.alloc(1);
  let line = [];
  for (let naps = 0; naps < MAX_ACK; ) {
    try {
      if (fs.readSync(3, byte, 0, 1, null) === 0) return;
    } catch (e) {
      if (e.code !== 'EAGAIN') throw e;
      Atomics.wait(nap, 0, 0, 1);
      naps++;
      continue;
    }
    if (byte[0] !== 10) {
      line.push(byte[0]);
      continue;
    }
    const req = JSON.parse(Buffer.from(line).toString('utf8'));
    if (req.op === 'interrupt') setImmediate(() => interrupt(req.id)); // as it would have come
    else if (req.op === 'anew') anew();
    else return;
    line = [];
  }
}

// display(value) shows a value that is not the cell's last; a plain object whose
// keys are MIME types is taken for a MIME bundle.
function display(value) {
  const keys = isObject(value) && !util.types.isProxy(value) ? Object.keys(value) : [];
  if (keys.length && keys.every((k) => /^[a-z]+\/[\w.+-]+$/.test(k))) {
    const data = {};
    for (const k of keys) data[k] = Buffer.isBuffer(value[k]) ? value[k].toString('base64') : value[k];
    return sendResult(false, data);
  }
  const show = isObject(value) && value[Symbol.for('Jupyter.display')];
  if (typeof show === 'function') return Promise.resolve(show.call(value)).then((d) => sendResult(false, Object.assign(plainBundle(value), d)));
  sendResult(false, plainBundle(value));
}
display.html = (s) => display({ 'text/html': String(s) });
display.markdown = (s) => display({ 'text/markdown': String(s) });
display.svg = (s) => display({ 'image/svg+xml': String(s) });

// ---- Errors

const cells = new Map(); // file name -> {edits, map, shown}

function locate(text) {
  return text.replace(/(<cell \d+>):(\d+)(?::(\d+))?/g, (all, file, line, col) => {
    const c = cells.get(file);
    if (!c) return all;
    line = Number(line);
    col = c.edits.column(line, Number(col || 1));
    if (c.map) {
      const e = c.map.findEntry(line - 1, col - 1);
      if (e && e.originalLine !== undefined) [line, col] = [e.originalLine + 1, e.originalColumn + 1];
    }
    return `${c.shown}:${line}:${col}`;
  });
}

const INTERNAL = /node:(vm|internal\/(vm|process|timers|modules\/cjs|main))\b/;

// An error as Node shows it, causes and properties included, without our frames
// and what called us.
function traceback(err) {
  let below = false;
  return locate(inspect(err))
    .split('\n')
    .filter((l) => {
      if (!/^\s+at /.test(l)) {
        below = false;
        return true;
      }
      if (l.includes(__filename)) below = true;
      return !below && !INTERNAL.test(l);
    })
    .join('\n');
}

const isError = (e) => util.types.isNativeError(e) || e instanceof Error;

function describe(err) {
  try {
    if (!isError(err)) return { name: 'Error', value: typeof err === 'string' ? err : inspect(err), traceback: 'Uncaught ' + inspect(err) };
    return { name: String(err.name), value: String(err.message), traceback: traceback(err) };
  } catch (e) {
    return { name: 'Error', value: 'an error that cannot be shown', traceback: '' };
  }
}

function interrupted() {
  return { name: 'Interrupted', value: 'execution interrupted', traceback: 'Interrupted: execution interrupted' };
}

// The message is V8's, as users know it; the position is acorn's, the parser's.
function syntaxError(src, cellName, err) {
  const file = programFile || cellName;
  let message = err.message.replace(/ \(\d+:\d+\)$/, '');
  try {
    new vm.Script(`(async()=>{${src}\n})`, { filename: file });
  } catch (e) {
    if (!/import|export|Unexpected token '\)'/.test(e.message)) message = e.message;
  }
  const { line, column } = err.loc || { line: 1, column: 0 };
  const text = src.split('\n')[line - 1] || '';
  const from = Math.max(0, column - (MAX_LINE >> 1));
  return {
    name: 'SyntaxError',
    value: message,
    traceback: `${file}:${line}:${column + 1}\n${text.slice(from, from + MAX_LINE)}\n${' '.repeat(column - from)}^\n\nSyntaxError: ${message}`,
  };
}

// ---- Running

const wire = new net.Socket({ fd: 3, readable: true, writable: true });
let cell = null; // what runs: {id, finish(errorOrNull)}
let count = 0;

function describeThrown(err) {
  return err && err.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? interrupted() : describe(err);
}

// Sets what stays in the environment, and the environment, folder, name and input of one call; returns what puts them
// back.
function enter(req) {
  Object.assign(process.env, req.keep);
  const old = Object.keys(req.env || {}).map((k) => [k, process.env[k]]);
  for (const [k] of old) process.env[k] = req.env[k];
  const dir = req.cwd ? process.cwd() : '';
  let leaveProgram = () => {};
  const leave = () => {
    programFile = '';
    leaveProgram();
    for (const [k, v] of old) {
      if (v === undefined) delete process.env[k];
      else process.env[k] = v;
    }
    if (dir) process.chdir(dir);
  };
  try {
    if (req.cwd) process.chdir(req.cwd);
    if (req.program || req.stdin) {
      programFile = (req.program && req.program.file) || '';
      leaveProgram = require('./node_program.cjs').enter(req, () => send({ ev: 'input', id: req.id }));
    }
  } catch (e) {
    leave();
    throw e;
  }
  return leave;
}

function sourceMap(src) {
  const m = /\n\/\/# sourceMappingURL=data:application\/json;base64,([\w+/=]+)\s*$/.exec(src);
  if (!m || !Module.SourceMap) return null;
  try {
    return new Module.SourceMap(JSON.parse(Buffer.from(m[1], 'base64').toString()));
  } catch (e) {
    return null;
  }
}

// Without the program that the guest has for it, types are erased by Node itself: in
// place, so that positions stay. It takes 60 ms and 17 MB the first time.
const erase = Module.stripTypeScriptTypes;
function eraseTypes(src) {
  const missing = 'TypeScript needs cubby-typescript beside the guest, or Node 22.13 or later';
  if (!erase) throw new Error(missing);
  try {
    return erase(src);
  } catch (e) {
    if (e.code === 'ERR_INVALID_TYPESCRIPT_SYNTAX') throw new SyntaxError(e.message);
    throw new Error(e.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX' ? `${e.message}, and cubby-typescript is not installed` : missing);
  }
}

function anew() {
  drawAnew();
  send({ ev: 'anew' });
}

function execute(req) {
  if (req.anew) drawAnew();
  const file = `<cell ${++count}>`;
  let leave = () => {};
  process.exitCode = undefined;
  cell = {
    id: req.id,
    ack: req.ack === true,
    finish(error) {
      if (!cell || cell.id !== req.id) return;
      // A program gets its 'exit' event once, also if a listener throws.
      if (req.program && req.drain && !me.told) {
        me.told = true;
        try {
          process.emit('exit', error ? 1 : Number(process.exitCode) || 0);
        } catch (e) {
          error = error || describe(e);
        }
      }
      if (error) send({ ev: 'error', id: req.id, name: error.name, value: error.value, traceback: error.traceback });
      cell = null;
      wire.ref();
      try {
        leave();
      } catch (e) {
        writeAll(2, `[cubby] ${e.message}\n`);
      }
      const code = error ? 1 : Number(process.exitCode) || 0;
      process.exitCode = undefined;
      send({ ev: 'done', id: req.id, exit_code: code & 255 });
    },
  };
  const me = cell;
  let code;
  try {
    if (req.typescript) req.code = eraseTypes(req.code);
    leave = enter(req);
    code = rewrite(req.code);
  } catch (e) {
    return me.finish(e instanceof SyntaxError && e.loc ? syntaxError(req.code, file, e) : describe(e));
  }
  cells.set(file, { edits: code.edits, map: sourceMap(req.code), shown: programFile || file });
  run(me, file, code, req).catch((e) => me.finish(describeThrown(e)));
}

// The value of setTimeout(...) as the last expression of a cell is not shown, nor is
// that of process.stdin.on(...) or server.listen(...) in a program.
function isTimer(value) {
  return isObject(value) && !util.types.isProxy(value) && (value instanceof Timeout || value instanceof Immediate);
}

async function run(me, file, code, req) {
  for (const name of code.declared) {
    const d = Object.getOwnPropertyDescriptor(globalThis, name);
    if (!d || (d.configurable && (d.get || d.set || !d.writable))) {
      Object.defineProperty(globalThis, name, { value: undefined, writable: true, enumerable: true, configurable: true });
    }
  }
  const script = new vm.Script(code.code, { filename: file, importModuleDynamically: defaultLoader || ((s) => cellImport(s)) });
  let value;
  try {
    value = script.runInThisContext({ breakOnSigint: true, displayErrors: false });
  } catch (e) {
    if (e && e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') clearAsyncIds();
    throw e;
  }
  // If the event loop runs empty, nothing can settle what the cell awaits. The wire
  // would keep it alive; beforeExit then ends the cell.
  wire.unref();
  if (code.async) ({ value } = { value: await value });
  if (code.shows && util.types.isPromise(value)) value = await value;
  if (cell !== me) return; // interrupted, or failed elsewhere
  if (code.shows && value !== undefined && !isTimer(value) && !(req.program && value instanceof EventEmitter)) {
    const data = await bundle(value);
    if (cell === me) sendResult(true, data);
  }
  me.finished = true;
  // Node reports unhandled rejections after this turn of the event loop.
  if (!req.drain) setImmediate(() => me.finish(null));
}

process.on('beforeExit', () => {
  if (!cell) return wire.ref();
  if (cell.finished) return cell.finish(null);
  const value = 'the code waits for a promise that nothing can settle any more';
  cell.finish({ name: 'Error', value, traceback: `Error: ${value}` });
});
process.on('SIGINT', () => {
  if (cell) cell.finish(interrupted());
});
function interrupt(id) {
  if (cell && cell.id === id) cell.finish(interrupted());
}
function stray(err) {
  if (cell) return cell.finish(describeThrown(err));
  try {
    writeAll(2, `Uncaught ${describe(err).traceback}\n`);
  } catch (e) {
    // Standard error is closed: there is nowhere to report it.
  }
}
process.on('uncaughtException', stray);
process.on('unhandledRejection', stray);

const tick = process._tickCallback;
const hidden = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
Object.defineProperty(globalThis, '$cubby', {
  value: Object.freeze({
    import: cellImport,
    meta,
    run(f) {
      const p = f();
      p.catch(() => {}); // we look at it in a moment
      // Continuations that wait for no event run here, where SIGINT can stop them.
      if (tick) tick.call(process);
      return p;
    },
  }),
});
hidden('require', cellRequire);
hidden('module', mainModule);
hidden('exports', mainModule.exports);
hidden('display', display);
for (const [name, get] of [['__dirname', () => meta.dirname], ['__filename', () => meta.filename]]) {
  Object.defineProperty(globalThis, name, { get, set: (v) => hidden(name, v), configurable: true });
}
process.execArgv = [];
process.argv = [process.argv[0]];

let parts = [];
wire.on('data', (chunk) => {
  for (let nl; (nl = chunk.indexOf(10)) >= 0; chunk = chunk.slice(nl + 1)) {
    parts.push(chunk.slice(0, nl));
    const line = Buffer.concat(parts).toString('utf8');
    parts = [];
    const req = JSON.parse(line);
    // A turn of the event loop later: a SIGINT that came before the request was for
    // the cell before, and may only be seen in that turn.
    if (req.op === 'execute') setImmediate(() => setImmediate(execute, req));
    else if (req.op === 'interrupt') setImmediate(() => setImmediate(interrupt, req.id));
    else if (req.op === 'anew') anew();
  }
  if (chunk.length) parts.push(chunk);
});
// The guest has closed the wire or ended: so does the kernel.
wire.on('end', () => process.reallyExit(0));
wire.on('error', () => process.reallyExit(0));
send({ ev: 'ready' });
