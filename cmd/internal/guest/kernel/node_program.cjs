'use strict';
// A cell that runs as a program: with a name, arguments and standard input.

const fs = require('fs');
const net = require('net');

const NULL = '/dev/null';

// Opens a file as descriptor 0. Node has no dup2, but open returns the lowest
// descriptor that is free.
function openAsStdin(file) {
  try {
    fs.closeSync(0);
  } catch (e) {
    // The code has closed it.
  }
  return fs.openSync(file, 'r');
}

// A stream over descriptor fd in place of process.stdin, which Node makes only once
// and would keep for the next call.
function stream(fd, file) {
  if (file === NULL) return Object.assign(new fs.ReadStream(null, { fd, autoClose: false }), { fd });
  const s = new net.Socket({ fd, readable: true, writable: false, manualStart: true });
  s.fd = fd;
  // A stream that nothing reads from, or that is paused, must not keep the event
  // loop alive.
  const rest = () => {
    if (!s._handle || s.readableFlowing) return;
    s._handle.reading = s._readableState.reading = false;
    s._handle.readStop();
  };
  rest();
  s.on('pause', () => process.nextTick(rest));
  return s;
}

// Sets the cell's arguments and input, and returns a function that restores what
// they replace. told is called once the input is open.
function enter(req, told) {
  const argv = process.argv;
  if (req.program) {
    const { name, file, args } = req.program;
    process.argv = [argv[0], ...(name ? [file || name] : []), ...(args || [])];
  }
  if (!req.stdin) return () => { process.argv = argv; };
  const own = Object.getOwnPropertyDescriptor(process, 'stdin');
  const fd = openAsStdin(req.stdin);
  told();
  let input = null;
  Object.defineProperty(process, 'stdin', { configurable: true, enumerable: true, get: () => input || (input = stream(fd, req.stdin)) });
  return () => {
    process.argv = argv;
    if (input) input.on('error', () => {}).destroy();
    Object.defineProperty(process, 'stdin', own);
    if (fd !== 0) fs.closeSync(fd);
    openAsStdin(NULL);
  };
}

module.exports = { enter };
