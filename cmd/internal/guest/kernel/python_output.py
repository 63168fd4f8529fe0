"""Standard output, error and input as cells see them."""

import _signal
import _thread
import builtins
import io
import sys
import time

LINES_AT_ONCE = 256  # lines a cell may write one by one before they are batched
LINES_PER_TICK = 32  # the same, for every tick of the flusher after that
TICK = 0.03  # seconds that text may wait in a buffer



class Buffer(io.BufferedWriter):
    """A writer that user code cannot close, not even by dropping a wrapper."""

    def close(self):
        self.flush()


class Stream(io.TextIOWrapper):
    """Standard output or error.

    A finished line is written at once while the cell writes few of them. In a
    flood the C implementation takes over and the flusher writes a batch per
    tick, so a million prints cost what they cost in a script. Text without a
    newline waits one tick at most.
    """

    def __init__(self, fd, name):
        raw = io.FileIO(fd, "wb", closefd=False)
        raw.name = name
        io.TextIOWrapper.__init__(
            self, Buffer(raw, 65536), encoding="utf-8", errors="backslashreplace", newline="\n"
        )
        setattr(self, "mode", "w")  # which the class only declares to read
        self.lines = 0
        self.careful = self.make_careful()
        self.arm(LINES_AT_ONCE)

    def make_careful(self):
        write, flush = super(Stream, self).write, super(Stream, self).flush

        def careful(text):
            n = write(text)
            if "\n" in text:
                if self.lines > 0:
                    self.lines -= 1
                    flush()
                    return n
                self.__dict__.pop("write", None)
            flusher.want()
            return n

        return careful

    def arm(self, lines):
        """Write the next so many lines one by one."""
        self.lines = lines
        setattr(self, "write", self.careful)

    def close(self):
        self.usable()

    def usable(self):
        try:
            self.flush()
            return True
        except (OSError, ValueError):
            return False


class Flusher:
    """Flushes buffered text every tick; its thread lives only while there is some."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.wanted = False
        self.running = False
        self.stopping = False
        self.bell = _thread.allocate_lock()
        self.bell.acquire()

    def want(self):
        self.wanted = True
        if not self.running:
            self.running = True
            try:
                _thread.start_new_thread(self.run, ())
            except RuntimeError:  # no thread can be started: flush now
                self.running = False
                flush()

    def run(self):
        _signal.pthread_sigmask(_signal.SIG_BLOCK, range(1, 32))  # signals belong to the main thread
        while True:
            self.bell.acquire(True, TICK)
            if self.stopping:
                break
            if not self.wanted:
                self.running = False
                if self.wanted and not self.running:
                    self.running = True
                    continue
                return
            self.wanted = False
            for stream in streams:
                stream.arm(LINES_PER_TICK)
                stream.usable()
        self.running = False

    def stop(self):
        """End the thread before a fork: a child must not inherit its locks."""
        if not self.running:
            return
        self.stopping = True
        self.bell.release()
        for _ in range(100):
            if not self.running:
                break
            time.sleep(0.001)
        self.reset()


flusher = Flusher()
streams: list = []
read_input = builtins.input
print_pieces = builtins.print


def flush():
    for stream in [sys.stdout, sys.stderr] + streams:
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed or replaced by user code


class NoInput(EOFError, RuntimeError):
    """Raised by every read of standard input."""


NoInput.__name__ = NoInput.__qualname__ = "StdinNotImplementedError"
NoInput.__module__ = "builtins"
NO_INPUT = (
    "this code runs without a terminal, so there is no input to read: "
    "put the value into the code, a file or an environment variable"
)


class Stdin(io.TextIOBase):
    """Standard input that says why nothing can be read."""

    name = "<stdin>"
    mode = "r"
    encoding = "utf-8"
    errors = "strict"

    @property
    def buffer(self):
        return self

    def refuse(self, *args):
        raise NoInput(NO_INPUT)

    read = read1 = readline = readlines = readinto = __next__ = refuse

    def __iter__(self):
        return self

    def readable(self):
        return True

    def fileno(self):
        return 0

    def close(self):
        pass


def no_debugger(*args, **options):
    """Stand in for breakpoint(): nobody is there to answer a debugger."""
    write_error("[cubby] breakpoint() does nothing: this code runs without a terminal\n")


def broken(stream):
    """Report whether nothing can be written to what user code left as a stream."""
    try:
        return stream.closed or not hasattr(stream, "write")
    except ValueError:  # detached from its buffer
        return True
    except AttributeError:
        return not hasattr(stream, "write")


def open_streams(reset):
    """Make sys.stdout and its siblings usable; reset also undoes replacements."""
    for i, name in enumerate(("stdout", "stderr")):
        if len(streams) <= i:
            streams.append(Stream(i + 1, "<%s>" % name))
        elif not streams[i].usable():
            streams[i] = Stream(i + 1, "<%s>" % name)
        current = getattr(sys, name, None)
        if reset or broken(current) or isinstance(current, Stream) and current is not streams[i]:
            setattr(sys, name, streams[i])
        setattr(sys, "__%s__" % name, streams[i])
    if reset or sys.stdin is None:
        sys.stdin = sys.__stdin__


def no_input(prompt=""):
    """Read a line from sys.stdin, which says that there is none unless replaced."""
    if isinstance(sys.stdin, Stdin):
        raise NoInput(NO_INPUT)
    return read_input(prompt)


def print_whole(*args, sep=" ", end="\n", file=None, flush=False):
    # The builtin writes a line in pieces, and each would seem to be text that
    # waits for its end: the thread for that costs a third of a short cell.
    out = sys.stdout if file is None else file
    if type(out) is not Stream or type(sep) is not str or type(end) is not str:
        return print_pieces(*args, sep=sep, end=end, file=file, flush=flush)
    out.write(sep.join([a if type(a) is str else str(a) for a in args]) + end)
    if flush:
        out.flush()


print_whole.__name__ = print_whole.__qualname__ = "print"
print_whole.__module__ = "builtins"
print_whole.__doc__ = print_pieces.__doc__


def begin():
    """Reset the count of lines that are written at once, for a new cell or a forked child."""
    for stream in streams:
        stream.arm(LINES_AT_ONCE)


def before_fork():
    flush()
    flusher.stop()


def write_error(text):
    """Write to standard error whatever user code made of sys.stderr."""
    try:
        streams[1].write(text)
    except (OSError, ValueError):
        pass
