'use strict';
// A cell that runs as a program does: with a name, arguments, input and an end.

const fs = require('fs');
const net = require('net');

const NULL = '/dev/null';

// Makes a file the descriptor 0. Node has no dup2, but the lowest free descriptor
// is the one that is opened.
function openAsStdin(file) {
  try {
    fs.closeSync(0);
  } catch (e) {
    // The code has closed it.
  }
  return fs.openSync(file, 'r');
}

// Node's own process.stdin is made once and for all, for the first input.
function stream(fd, file) {
  if (file === NULL) return Object.assign(new fs.ReadStream(null, { fd, autoClose: false }), { fd });
  const s = new net.Socket({ fd, readable: true, writable: false, manualStart: true });
  s.fd = fd;
  // It must not keep the program alive before somebody listens, nor after a pause.
  const rest = () => {
    if (!s._handle || s.readableFlowing) return;
    s._handle.reading = s._readableState.reading = false;
    s._handle.readStop();
  };
  rest();
  s.on('pause', () => process.nextTick(rest));
  return s;
}

// Prepares what the cell is told, and returns what puts back what was there.
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
