"""Cubby's Python kernel: runs cells in one lasting __main__ namespace.

The guest starts this file as a script. Descriptor 3 is a stream socket that
carries one JSON object per line both ways; descriptors 1 and 2 are pipes that
user code and its children write to directly. Printed text is flushed before
anything is written to the socket, which keeps text and results in order.

Start-up is what a caller waits for, so this file holds only what every cell
needs and imports nothing that the interpreter has not loaded already. The rest
lives in python_*.py next to it and is loaded at first use.

The files here run on Python 3.8 and later.
"""

import _ast
import _signal
import _thread
import builtins
import io
import os
import sys

TYPE_CHECKING = False  # True for tools that read this file and do not run it
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Failure = Tuple[int, str, str, str]  # exit status, name, value and traceback

SIGINT = 2
SIGANEW = _signal.SIGURG  # see kernel.go
MAX_MESSAGE = 32 << 20  # bytes of one result on the socket
MAX_SOURCES = 16 << 20  # characters of cell source kept for tracebacks

HERE = os.path.dirname(os.path.abspath(__file__))
AWAIT = getattr(_ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
FUTURES = 0x1FE0000 if sys.version_info >= (3, 9) else 0
COROUTINE = 0x80

parts: "Dict[str, Any]" = {}


def part(name: str) -> "Any":
    """Return a sibling file as a module, compiled at its first use.

    It finds the session as its global name kernel, before its first line runs. The
    files import that name only where TYPE_CHECKING holds: for tools that read them.
    """
    module = parts.get(name)
    if module is None:
        path = os.path.join(HERE, name + ".py")
        with io.open(path, encoding="utf-8") as f:
            source = f.read()
        module = type(sys)("_cubby_" + name)
        module.__file__ = path
        setattr(module, "kernel", kernel)
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        parts[name] = module
    return module


# JSON. The json package costs several milliseconds (it needs re), its C half
# costs none.


def make_reader():
    """Return a function from JSON text to its value."""
    try:
        import _json

        class Options:
            strict = False
            object_hook = None
            object_pairs_hook = None
            parse_float = float
            parse_int = int
            parse_constant = float
            memo = {}

        scan = _json.make_scanner(Options())  # type: ignore
        return lambda text: scan(text, 0)[0]
    except Exception:
        import json

        return json.loads


def make_quoter():
    try:
        import _json

        return _json.encode_basestring_ascii
    except (ImportError, AttributeError):
        import json

        return json.dumps


read_json = make_reader()
quote_ascii = make_quoter()


def quote(text: str) -> str:
    """Return text as an ASCII JSON string; lone surrogates become U+FFFD."""
    text = str.__str__(text)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return quote_ascii(text)


class Kernel:
    """The session: namespace, socket and the loop over cells."""

    def __init__(self):
        self.pid = os.getpid()
        self.part = part
        self.quote = quote
        self.hidden: "Tuple[str, ...]" = (HERE + os.sep,)  # files whose frames no traceback shows
        self.main = type(sys)("__main__")
        self.ns = self.main.__dict__
        self.ns["__builtins__"] = builtins
        self.file: "Optional[str]" = None  # of the cell that runs as a program
        self.input_encoding: "Tuple[str, Optional[str]]" = ("utf-8", "strict")  # with its errors, as the interpreter chose it
        self.cell = 0  # number of the cell that runs or ran last
        self.id = 0  # its id on the wire
        self.command_failed = False  # one that the cell ran with ! or a magic
        self.thread = _thread.get_ident()
        self.acks = False  # whether the guest answers results
        self.sources: "Dict[str, str]" = {}  # file name of a cell -> its text
        self.source_size = 0
        self.flags = 0  # __future__ features in force
        self.loop: "Any" = None  # the event loop of awaiting cells
        self.control = -1
        self.lock = _thread.allocate_lock()
        self.saved: "List[Tuple[int, int, os.stat_result]]" = []
        self.captured: "Optional[List[Dict[str, str]]]" = None  # list that collects results while %%capture runs
        self.inbox = b""
        self.shell: "Any" = None  # IPython's, for contexts that ask for it
        self.user_site: "Optional[str]" = None  # where pip installs to, until it has

    # The socket.

    def open(self):
        self.control = dup_high(3)
        os.close(3)
        self.saved = [(fd, dup_high(fd), os.fstat(fd)) for fd in (1, 2)]
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=output.before_fork, after_in_child=self.after_fork_in_child)

    def after_fork_in_child(self):
        if self.control >= 0:
            os.close(self.control)
        self.control = -1
        output.flusher.reset()
        output.begin()

    def send(self, line: str, ack: bool = False) -> None:
        """Write one message, and wait until it was acted on. A signal never splits it."""
        output.flush()
        data = memoryview((line + "\n").encode("ascii"))
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (SIGINT, SIGANEW))
        try:
            with self.lock:
                while len(data) and self.control >= 0:
                    data = data[os.write(self.control, data[: 1 << 20]) :]
                if ack and self.control >= 0:
                    self.receive()
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    def send_result(self, data: "Dict[str, str]", main: bool) -> None:
        """Send a result; data maps a MIME type to its JSON text, which is empty if it was left out."""
        if self.control < 0:
            return
        size = sum(len(v) for v in data.values())
        if size > MAX_MESSAGE:
            text = data.get("text/plain", "")
            note = "<result of %.1f MiB left out: over the limit of %d MiB>" % (
                size / 1048576.0,
                MAX_MESSAGE >> 20,
            )
            data = dict.fromkeys(data, "")
            data["text/plain"] = quote(note)
            if 0 < len(text) < 1 << 20:
                data["text/plain"] = text[:-1] + quote("\n" + note)[1:]
        body = ",".join(quote(k) + ":" + v for k, v in data.items() if v)
        left_out = ",".join(quote(k) for k, v in data.items() if not v)
        # Text that is printed next goes through the pipes, which could be read before
        # the socket: so wait for the answer. Nothing is printed after the main result.
        self.send(
            '{"ev":"result","id":%d,"main":%s,"data":{%s}%s}'
            % (self.id, "true" if main else "false", body, left_out and ',"left_out":[%s]' % left_out),
            # (Only the thread that receives may wait for an answer.)
            ack=self.acks and not main and _thread.get_ident() == self.thread,
        )

    def send_error(self, name: str, value: str, traceback: str) -> None:
        self.send(
            '{"ev":"error","id":%d,"name":%s,"value":%s,"traceback":%s}'
            % (self.id, quote(name), quote(value), quote(traceback))
        )

    def receive(self):
        """Return the next message; the process ends with the socket."""
        chunks = []
        while True:
            line, newline, rest = self.inbox.partition(b"\n")
            chunks.append(line)
            if newline:
                self.inbox = rest
                return read_json(b"".join(chunks).decode("utf-8"))
            self.inbox = os.read(self.control, 1 << 16)
            if not self.inbox:
                output.flush()
                os._exit(0)

    def draw_anew(self, signum, frame):
        """Draw anew between two instructions of whatever runs."""
        if os.getpid() != self.pid or not part("python_anew").draw(False):
            return
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (SIGINT, SIGANEW))
        try:
            with self.lock:  # held by another thread if by any: in send() the signal waits
                os.write(self.control, b'{"ev":"anew"}\n')
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    # Cells.

    def serve(self):
        self.send('{"ev":"ready"}')
        while True:
            try:
                self.execute(self.receive())
            except KeyboardInterrupt:
                pass  # came between two cells

    def execute(self, message: "Dict[str, Any]") -> None:
        if message.get("op", "execute") != "execute":
            return
        self.id = message.get("id", 0)
        self.acks = message.get("ack", False)
        self.cell += 1
        self.command_failed = False
        output.begin()
        undo: list = []
        failure = None
        try:
            if message.get("anew"):
                part("python_anew").draw(True)
            self.prepare(message, undo)
            _signal.signal(SIGINT, _signal.default_int_handler)
            failure = self.guarded(message.get("code", ""), bool(message.get("drain")) and "program" in message)
        except BaseException as e:  # an interrupt before guarded() or after it, a bad directory
            failure = failure or self.describe(e)
        ignore_interrupts()
        if os.getpid() != self.pid:
            self.leave(failure)
        try:
            self.restore(undo, failure)
        except Exception as e:  # user code replaced what restore() works with
            failure = failure or self.describe(e)
        status = 0
        if failure:
            status, name, value, traceback = failure
            self.send_error(name, value, traceback)
        failed = ',"command_failed":true' if self.command_failed else ""
        self.send('{"ev":"done","id":%d,"exit_code":%d%s}' % (self.id, status, failed))

    def prepare(self, message: "Dict[str, Any]", undo: "List[Tuple]") -> None:
        os.environ.update(message.get("keep") or {})
        for name, value in (message.get("env") or {}).items():
            undo.append((os.environ.__setitem__, name, os.environ[name]) if name in os.environ
                        else (os.environ.pop, name, None))
            os.environ[name] = value
        cwd = message.get("cwd")
        if cwd:
            try:
                undo.append((os.chdir, os.getcwd()))
            except OSError:
                undo.append((os.chdir, os.path.expanduser("~")))
            os.chdir(cwd)
        if "program" in message or "stdin" in message:
            part("python_program").enter(message, undo)
        for finder in list(sys.path_importer_cache.values()):
            if finder is not None and hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()  # a file written by the cell before is found
        self.find_user_site()

    def find_user_site(self) -> bool:
        """Put the user's site-packages on sys.path once pip has made them; say if it has."""
        if not self.user_site or not os.path.isdir(self.user_site):
            return False
        before = list(sys.path)
        sys.modules["site"].addsitedir(self.user_site)
        new = [path for path in sys.path if path not in before]
        packages = [i for i, path in enumerate(before) if str(path).endswith("-packages")]
        at = packages[0] if packages else len(before)  # what is upgraded there comes first
        sys.path[:] = before[:at] + new + before[at:]
        self.user_site = None
        return True

    def guarded(self, code: str, ends: bool) -> "Optional[Failure]":
        """Run a cell and show its figures; return how it failed, or None.

        ends says that it is a program that ends as one.
        """
        failure = None
        try:
            if self.shell:
                failure = self.shell.run(code)
            else:
                self.run(code)
        except BaseException as e:
            failure = self.describe(e)
        try:
            if "matplotlib.pyplot" in sys.modules and os.getpid() == self.pid:
                part("python_display").show_figures()
            if ends and os.getpid() == self.pid:
                part("python_program").finish()
        except BaseException as e:
            failure = failure or self.describe(e)
        return failure

    def run(self, code):
        name = self.file or "<cell %d>" % self.cell
        if code.startswith("\ufeff"):
            code = code[1:]  # a byte order mark, from a file
        self.remember(name, code)
        tree, text, error = None, code, None
        try:
            tree = self.parse(code, name)
        except SyntaxError as e:
            error = e
        if tree is None:  # out of the handler: what follows is not "during handling of"
            tree, text = part("python_magic").rescue(code, name, error)
            error = None
        value = self.evaluate(tree, text, name)
        if value is not None:
            self.show(value)

    def parse(self, code, name):
        return compile(code, name, "exec", _ast.PyCF_ONLY_AST | AWAIT | self.flags, True)

    def evaluate(self, tree, text, name):
        """Run a parsed cell; return the value of its last expression or None."""
        last = None
        body = tree.body
        if body and isinstance(body[-1], _ast.Expr):
            last = body.pop()
        steps, flags = [], AWAIT | self.flags
        if body:
            steps.append(compile(tree, name, "exec", flags, True))
            self.flags |= steps[0].co_flags & FUTURES
        if last is not None:
            quiet = silenced(text, last)
            steps.append(compile(_ast.Expression(last.value), name, "eval", AWAIT | self.flags, True))
        if any(step.co_flags & COROUTINE for step in steps):
            value = part("python_async").drive(steps)
        else:
            value = None
            if self.loop is not None:
                part("python_async").adopt()
            for step in steps:
                value = eval(step, self.ns)
        return value if last is not None and not quiet else None

    def show(self, value):
        """Show the value of a cell and keep it as _."""
        if self.control < 0:
            print(repr(value))
            return
        kind = type(value)
        if kind in (int, float, str, bool, complex, bytes):
            data = {"text/plain": quote(repr(value))}
            if self.captured is None:
                self.send_result(data, True)
            else:
                self.captured.append(data)
        else:
            part("python_display").show(value, True)
        space = builtins.__dict__
        space["___"], space["__"], space["_"] = space.get("__"), space.get("_"), value

    def remember(self, name, code):
        """Keep the text of a cell for tracebacks and inspect."""
        self.sources[name] = code
        self.source_size += len(code)
        while self.source_size > MAX_SOURCES and len(self.sources) > 1:
            old = next(iter(self.sources))
            self.source_size -= len(self.sources.pop(old))
        if "linecache" in sys.modules:
            self.publish_sources(sys.modules["linecache"])

    def publish_sources(self, linecache):
        for name, code in self.sources.items():
            if name not in linecache.cache:
                lines = [line + "\n" for line in code.split("\n")]
                linecache.cache[name] = (len(code), None, lines, name)

    def describe(self, error: BaseException) -> "Optional[Failure]":
        """Return (status, name, value, traceback) of an exception, None for a clean exit."""
        try:
            return part("python_errors").describe(error)
        except BaseException as e:  # its __str__ raised, or an interrupt came
            name = type(error).__name__
            return 1, name, "", "%s: <no text: %s>" % (name, type(e).__name__)
        finally:
            del error

    def complain(self, text: str) -> None:
        output.write_error(text + "\n")

    def leave(self, failure: "Optional[Failure]"):
        """End a forked child that fell off the end of the cell."""
        status = failure[0] if failure else 0
        if failure and failure[1] != "SystemExit":
            self.complain(failure[3])
        output.flush()
        os._exit(status)

    def restore(self, undo, failure):
        """Put back what the cell may change only for itself."""
        output.flush()
        for step in reversed(undo):
            try:
                step[0](*step[1:])
            except OSError:
                pass
        for fd, copy, was in self.saved:
            try:
                now = os.fstat(fd)
                intact = (now.st_dev, now.st_ino) == (was.st_dev, was.st_ino)
            except OSError:
                intact = False
            if not intact:
                os.dup2(copy, fd)
        output.open_streams(bool(failure))

    def forget(self):
        """Drop the values kept as _, __ and ___."""
        for name in ("_", "__", "___"):
            builtins.__dict__.pop(name, None)


def silenced(text, node):
    """Report whether the statement of this expression ends in a semicolon."""
    if ";" not in text:
        return False
    if not hasattr(node, "end_lineno"):
        return text.rstrip().endswith(";")
    lines = text.split("\n")[node.end_lineno - 1 :]
    rest = lines[0].encode("utf-8", "replace")[node.end_col_offset :].decode("utf-8", "replace")
    for line in [rest] + lines[1:]:
        line = line.split("#", 1)[0].strip(" \t\f\r\\)")
        if line:
            return line.startswith(";")
    return False


def ignore_interrupts():
    """Make SIGINT do nothing, from the end of a cell until the next one."""
    while True:
        try:
            _signal.signal(SIGINT, ignore)
            return
        except KeyboardInterrupt:
            pass  # one that was pending


def ignore(signum, frame):
    pass


def dup_high(fd):
    """Duplicate a descriptor to a high number, not inheritable, so that user code does not meet it."""
    for target in (1000, 500, 250, 60):
        target += fd
        try:
            os.fstat(target)
        except OSError:
            try:
                return os.dup2(fd, target, False) or target
            except OSError:
                pass
    return os.dup(fd)


def display(*objects, **options):
    """Show objects as rich results."""
    return part("python_display").display(*objects, **options)


# What happens right after a module is imported for the first time.


def after_subprocess(module):
    """Flush before each child starts, so that text printed before it comes before the child's."""
    start = module.Popen._execute_child

    def _execute_child(self, *args, **kwargs):
        output.flush()
        return start(self, *args, **kwargs)

    module.Popen._execute_child = _execute_child


def after_multiprocessing(module):
    """Keep fork as the default, which 3.14 changed: only a forked child has the functions of cells."""
    if sys.version_info >= (3, 14):
        module._default_context = module.DefaultContext(module._concrete_contexts["fork"])


def after_display(module):
    part("python_display").adopt(module)


AFTER = {
    "linecache": lambda module: kernel.publish_sources(module),
    "subprocess": after_subprocess,
    "multiprocessing.context": after_multiprocessing,
    "matplotlib": after_display,
    "matplotlib.axes._axes": after_display,
    "matplotlib.pyplot": after_display,
    "PIL.Image": after_display,
    "PIL.ImageShow": after_display,
    "IPython.core.display": after_display,
    "IPython.core.display_functions": after_display,
}


class Importer:
    """A finder that notices imports and stands in for IPython where it is missing."""

    def __init__(self):
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in AFTER or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = None
            for finder in sys.meta_path:
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        break
        finally:
            self.busy.discard(name)
        loader = getattr(spec, "loader", None)
        if loader is None or isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def exec_module(module):
            load(module)
            AFTER[name](module)

        loader.exec_module = exec_module
        return spec


class Fallback:
    """The last finder: what pip has just installed, and a small IPython.display."""

    def find_spec(self, name, path=None, target=None):
        if kernel.find_user_site():
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
                if spec is not None:
                    return spec
        if name == "IPython" or name in ("IPython.display", "IPython.core", "IPython.core.display"):
            return part("python_display").stand_in(name)
        return None


def flushed(call):
    def system(command):
        output.flush()
        return call(command)

    system.__doc__ = call.__doc__
    return system


def start(args):
    kernel.open()
    if sys.stdin is not None:
        kernel.input_encoding = sys.stdin.encoding, sys.stdin.errors
    sys.stdin = sys.__stdin__ = output.Stdin()  # type: ignore[assignment]
    output.open_streams(True)
    ignore_interrupts()
    _signal.signal(SIGANEW, kernel.draw_anew)
    sys.modules["_cubby_kernel"] = sys.modules["__main__"]
    sys.modules["__main__"] = kernel.main
    sys.argv = [""]
    if sys.path and os.path.abspath(sys.path[0] or os.curdir) == HERE:
        sys.path[0] = ""
    else:
        sys.path.insert(0, "")
    os.environ.setdefault("MPLBACKEND", "agg")
    builtins.input = output.no_input
    builtins.print = output.print_whole
    setattr(builtins, "display", display)
    sys.breakpointhook = output.no_debugger
    os.system = flushed(os.system)
    for name in AFTER:
        if name in sys.modules:
            AFTER[name](sys.modules[name])
    sys.meta_path.insert(0, Importer())
    sys.meta_path.append(Fallback())
    site = sys.modules.get("site")
    user_site = getattr(site, "USER_SITE", None)
    if getattr(site, "ENABLE_USER_SITE", False) and user_site and user_site not in sys.path:
        kernel.user_site = user_site
    if "--ipython" in args:
        kernel.shell = part("ipython").Shell()
    kernel.serve()


kernel: Kernel = Kernel()
if TYPE_CHECKING:
    import python_output as output
else:
    output = part("python_output")
if __name__ == "__main__":
    start(sys.argv[1:])
