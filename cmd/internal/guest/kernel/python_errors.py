"""How a cell failed, in the words of the interpreter, without the kernel's frames."""

import linecache
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel

MAX_VALUE = 32 << 10  # characters of an exception's text
MAX_TRACEBACK = 128 << 10  # characters of a traceback
MAX_LINES = 240  # lines of a traceback
MAX_CHAIN = 64  # exceptions followed through __cause__ and __context__


def describe(error):
    """Return (exit status, name, value, traceback), or None for a clean exit."""
    if isinstance(error, SystemExit):
        return describe_exit(error)
    kernel.publish_sources(linecache)
    name = type(error).__name__
    status = 130 if isinstance(error, KeyboardInterrupt) else 1
    try:
        value = str(error)
    except Exception as e:
        value = "<no text: str() raised %s>" % type(e).__name__
    return status, name, shorten(value, MAX_VALUE), render(error)


def describe_exit(error):
    code = error.code
    if code is None:
        return None
    if isinstance(code, int):
        status = int(code) & 0xFF
        value = str(int(code))
        if status == 0:
            return None
    else:
        status, value = 1, shorten(str(code), MAX_VALUE)
        kernel.complain(value)
    return status, "SystemExit", value, "SystemExit: " + value


def render(error):
    """Return the traceback as text, bounded in lines and characters."""
    try:
        report = traceback.TracebackException(type(error), error, strip(error.__traceback__))
        for one in chain(report):
            tidy(one)
        text = "".join(report.format())
    except Exception as e:
        text = "%s: <no traceback: %s>" % (type(error).__name__, type(e).__name__)
    lines = text.rstrip("\n").split("\n")
    if len(lines) > MAX_LINES:
        half = MAX_LINES // 2
        left_out = len(lines) - 2 * half
        lines[half:-half] = ["  ... %d lines left out ..." % left_out]
    return shorten("\n".join(lines), MAX_TRACEBACK)


def chain(report):
    """Yield a report, its causes and contexts, and the members of its groups."""
    todo = [report]
    seen: set = set()
    while todo and len(seen) < MAX_CHAIN:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__]
        todo += list(getattr(one, "exceptions", None) or [])


def strip(tb):
    """Drop the frames between the kernel and the first line of a cell."""
    first = tb
    while first is not None:
        name = first.tb_frame.f_code.co_filename
        if name in kernel.sources or name.startswith("<ipython-input-"):
            return first
        first = first.tb_next
    while tb is not None and ours(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    return tb


def tidy(report):
    """Drop the kernel's frames."""
    if report.stack is None:
        return
    report.stack[:] = [frame for frame in report.stack if not ours(frame.filename)]


def ours(filename):
    return filename.startswith(kernel.hidden)


def shorten(text, limit):
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return "%s\n... %d characters left out ...\n%s" % (text[:head], len(text) - limit, text[-tail:])
