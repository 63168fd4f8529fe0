"""Cells that run as a program: with a name, arguments and standard input, and with atexit at their end."""

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel


def enter(message, undo):
    """Set the cell's name, arguments and input; append to undo the calls that restore what they replace."""
    program = message.get("program")
    if program is not None:
        file = program.get("file")
        undo.append((setattr, sys, "argv", sys.argv))
        sys.argv = [program.get("name") or "-c"] + (program.get("args") or [])
        if file:
            undo.append((setattr, kernel, "file", None))
            undo.append((kernel.ns.pop, "__file__", None))
            kernel.file = kernel.ns["__file__"] = file
    if message.get("stdin"):
        undo.append((close_input, sys.stdin, sys.__stdin__))
        open_input(message["stdin"])


def open_input(path):
    open_as_stdin(path)
    kernel.send('{"ev":"input","id":%d}' % kernel.id)
    encoding, errors = kernel.input_encoding
    raw = io.FileIO(0, "rb", closefd=False)
    raw.name = "<stdin>"
    stream = io.TextIOWrapper(io.BufferedReader(raw), encoding=encoding, errors=errors, newline="\n")
    setattr(stream, "mode", "r")
    sys.stdin = sys.__stdin__ = stream


def close_input(current, original):
    open_as_stdin(os.devnull)
    if sys.stdin is sys.__stdin__:
        sys.stdin = current
    sys.__stdin__ = original


def open_as_stdin(path):
    """Open a file as descriptor 0, which child processes inherit."""
    fd = os.open(path, os.O_RDONLY)
    if fd:
        os.dup2(fd, 0)
        os.close(fd)


def finish():
    """End as the interpreter does: wait for non-daemon threads, then call atexit's functions."""
    threading = sys.modules.get("threading")
    if threading is not None:
        for call in reversed(getattr(threading, "_threading_atexits", [])):
            call()  # executors end their idle threads
        pools = sys.modules.get("concurrent.futures.thread")
        if pools is not None:
            setattr(pools, "_shutdown", False)  # a later cell may use them
        while True:
            others = [t for t in threading.enumerate() if not t.daemon and t is not threading.current_thread()]
            if not others:
                break
            for thread in others:
                thread.join()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
