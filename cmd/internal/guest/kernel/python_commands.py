"""What magics and shell lines do. Rewritten cells call line, cell, system, output, explain."""

import os
import re
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel

MISSING = object()
NETWORK_FILE = "/etc/cubby/network"  # registries that are not reached, and a sentence; or not there


class UsageError(Exception):
    """A magic that does not exist or was used wrongly."""


UsageError.__module__ = "builtins"


# The shell.


def system(command, scope=None):
    """Run a shell command; its output goes straight to the cell's."""
    command = expand(command, scope or Scope())
    status = run_shell(command)
    ended(status)
    after(command, status)


def ended(status):
    kernel.ns["_exit_code"] = status
    kernel.command_failed = kernel.command_failed or status != 0


def output(command, scope=None):
    """Run a shell command and return the lines it printed."""
    command = expand(command, scope or Scope())
    child = start(shell(command), stdout=subprocess.PIPE)
    data = attended(child, lambda: child.communicate()[0])
    ended(child.returncode)
    after(command, child.returncode)
    return Lines(data.decode("utf-8", "replace").splitlines())


class Lines(list):
    """Lines of a command: a list with the text as .s, .n and .l."""

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)

    @property
    def l(self):  # noqa: E743, the name is IPython's
        return list(self)


def shell(command):
    if re.match(r"\s*pip3?\s", command):  # the pip of this interpreter
        command = re.sub(r"^\s*pip3?", lambda m: quoted(sys.executable) + " -m pip", command)
    program = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    return [program, "-c", command]


def after(command, status):
    """See to what a command may have installed, and say why it could not."""
    if not re.match(r"\s*pip3?\s|.*\s-m\s+pip\s", command):
        return
    kernel.find_user_site()
    for finder in list(sys.path_importer_cache.values()):
        if finder is not None and hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()
    if status and re.search(r"\s(install|download)\s", command):
        try:
            with open(NETWORK_FILE, encoding="utf-8") as f:
                closed, words = f.read(4096).split("\n")[:2]
        except (OSError, ValueError):
            return
        if "pypi" in closed.split():
            kernel.complain(words)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def start(args, **options):
    return subprocess.Popen(args, stdin=subprocess.DEVNULL, start_new_session=True, **options)


def run_shell(command):
    child = start(shell(command))
    return attended(child, child.wait)


def attended(child, wait):
    """Wait for a child; an interrupt reaches the child and all it started."""
    try:
        return wait()
    except BaseException as e:
        for signal, patience in ((2, 0.5), (9, 5)):
            try:
                os.killpg(child.pid, signal)
                child.wait(patience)
                break
            except (OSError, subprocess.TimeoutExpired):
                pass
        raise e.with_traceback(None)


class Scope:
    """The names that the calling line sees."""

    def __init__(self, depth=2):
        frame = sys._getframe(depth)
        self.globals, self.locals = frame.f_globals, frame.f_locals

    def get(self, name):
        return self.locals.get(name, self.globals.get(name, MISSING))

    def value(self, expression):
        return eval(expression, self.globals, self.locals)


EXPANDED = re.compile(
    r"\$\$|\$\{?(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*)*)|\{\{|\}\}|\{(?P<expr>[^{}\n]+)\}"
)


def expand(command, scope):
    """Put Python values into a command: {expression} and $name.

    What is no Python name or expression is left to the shell.
    """

    def value(m):
        whole = m.group(0)
        if whole in ("$$", "{{", "}}"):
            return whole[0]
        if m.group("expr"):
            try:
                return str(scope.value(m.group("expr").strip()))
            except Exception:
                return whole
        if whole.startswith("${"):
            return whole
        found = scope.get(m.group("name"))
        if found is MISSING:
            return whole
        try:
            for step in (m.group("path") or "").split(".")[1:]:
                found = getattr(found, step)
        except AttributeError:
            return whole
        return str(found)

    if "$" not in command and "{" not in command:
        return command
    return EXPANDED.sub(value, command)


# Dispatch.


def line(name, args):
    """Run %name args and return its value."""
    scope = Scope()
    if name in IGNORED:
        return None
    if name in ALIASES:
        return system(ALIASES[name] + " " + args, scope)
    magic = LINE.get(name)
    if magic is None:
        hint = " (%%%%%s works on a whole cell)" % name if name in CELL else ""
        raise UsageError("line magic %%%s is not known here%s" % (name, hint))
    return magic(args, scope)


def cell(name, args, body, row):
    """Run %%name args over the rest of the cell, which begins after that row."""
    scope = Scope()
    magic = CELL.get(name)
    if magic is None:
        hint = " (%%%s works on one line)" % name if name in LINE else ""
        raise UsageError("cell magic %%%%%s is not known here%s" % (name, hint))
    return magic(args, body, row, scope)


def options(args, flags):
    """Split leading -x and -x VALUE options off; flags names those with a value."""
    found: dict = {}
    words = args
    while True:
        m = re.match(r"\s*-(\w)", words)
        if not m or m.group(1) not in flags:
            return found, words.strip()
        key, words = m.group(1), words[m.end() :]
        if flags[m.group(1)]:
            m = re.match(r"\s*(\S+)", words)
            if not m:
                raise UsageError("option -%s needs a value" % key)
            found[key], words = m.group(1), words[m.end() :]
        else:
            found[key] = True


def run_text(text, row):
    """Run Python that stands in this cell after so many lines; return its value."""
    return prepared(text, row)()


def prepared(text, row):
    """Parse Python that stands in this cell after so many lines; return what runs it."""
    name = "<cell %d>" % kernel.cell
    text = "\n" * row + text
    tree = error = None
    try:
        tree = kernel.parse(text, name)
    except SyntaxError as e:
        error = e
    if tree is None:
        tree, text = kernel.part("python_magic").rescue(text, name, error)
    return lambda: kernel.evaluate(tree, text, name)


# Time.


def clock(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return "%.3g %s" % (seconds * scale, unit)
    return "%.3g ns" % (seconds * 1e9)


def timed(call):
    wall, cpu = time.perf_counter(), os.times()
    try:
        return call()
    finally:
        wall, after = time.perf_counter() - wall, os.times()
        user, kern = after.user - cpu.user, after.system - cpu.system
        print("CPU times: user %s, sys: %s, total: %s" % (clock(user), clock(kern), clock(user + kern)))
        print("Wall time: %s" % clock(wall))


def time_line(args, scope):
    if not args:
        return None
    return timed(lambda: run_here(args, scope))


def run_here(text, scope):
    """Run a statement with the names of the calling line; return an expression's value."""
    if scope.globals is scope.locals:
        return run_text(text, 0)
    name = "<cell %d>" % kernel.cell
    try:
        code = compile(text, name, "eval", 0, True)
    except SyntaxError:
        code = compile(text, name, "exec", 0, True)
    return eval(code, scope.globals, scope.locals)


def time_cell(args, body, row, scope):
    return timed(prepared(body, row))


def timeit_line(args, scope):
    found, statement = options(args, {"n": True, "r": True, "q": False, "o": False, "t": False, "c": False})
    return timeit(found, statement, "pass", scope)


def timeit_cell(args, body, row, scope):
    found, setup = options(args, {"n": True, "r": True, "q": False, "o": False, "t": False, "c": False})
    return timeit(found, body, setup or "pass", scope)


def timeit(found, statement, setup, scope):
    import timeit as module

    names = dict(scope.globals)
    names.update(scope.locals)
    timer = module.Timer(statement, setup, globals=names)
    repeat = int(found.get("r", 7))
    number = int(found.get("n", 0))
    if number < 1:
        number = timer.autorange()[0]
    runs = [t / number for t in timer.repeat(repeat, number)]
    mean = sum(runs) / len(runs)
    spread = (sum((t - mean) ** 2 for t in runs) / len(runs)) ** 0.5
    if not found.get("q"):
        print(
            "%s ± %s per loop (mean ± std. dev. of %d run%s, %s loop%s each)"
            % (clock(mean), clock(spread), repeat, "s" * (repeat != 1), "{:,}".format(number), "s" * (number != 1))
        )
    return runs if found.get("o") else None


# Files, directories, environment.


def pwd(args, scope):
    return os.getcwd()


def cd(args, scope):
    found, args = options(args, {"q": False})
    target = expand(args, scope).strip("'\"") or "~"
    if target == "-":
        target = kernel.ns.get("_oldpwd", os.getcwd())
    kernel.ns["_oldpwd"] = os.getcwd()
    os.chdir(os.path.expanduser(target))
    if not found:
        print(os.getcwd())


def env(args, scope):
    if not args:
        return dict(os.environ)
    name, sign, value = args.partition("=")
    if not sign:
        name, sign, value = args.partition(" ")
    name = name.strip()
    if not sign:
        if name not in os.environ:
            raise UsageError("environment variable %s is not set" % name)
        return os.environ[name]
    os.environ[name] = expand(value.strip(), scope)
    print("env: %s=%s" % (name, os.environ[name]))


def write_file(args, body, row, scope):
    found, path = options(args, {"a": False})
    path = os.path.expanduser(expand(path, scope).strip("'\""))
    if not path:
        raise UsageError("%%writefile needs a file name")
    known = os.path.exists(path)
    if body and not body.endswith("\n"):
        body += "\n"
    with open(path, "a" if found.get("a") else "w", encoding="utf-8") as f:
        f.write(body)
    print("%s %s" % ("Appending to" if found.get("a") else "Overwriting" if known else "Writing", path))


def pip(args, scope):
    system("pip " + args, scope)


def run_file(args, scope):
    import shlex

    found, rest = options(args, {"i": False, "n": False})
    words = shlex.split(expand(rest, scope))
    if not words:
        raise UsageError("%run needs a file name")
    path = os.path.expanduser(words[0])
    if not os.path.exists(path) and os.path.exists(path + ".py"):
        path += ".py"
    with open(path, "rb") as f:
        code = compile(f.read(), path, "exec", 0, True)
    space = kernel.ns if found.get("i") else {"__builtins__": kernel.ns["__builtins__"]}
    before = {k: space.get(k, MISSING) for k in ("__name__", "__file__")}
    space["__name__"] = "__run__" if found.get("n") else "__main__"
    space["__file__"] = path
    argv, first = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [path] + words[1:], os.path.dirname(os.path.abspath(path))
    try:
        exec(code, space)
    except SystemExit as e:
        if e.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[0] = argv, first
        for key, value in before.items():
            if value is MISSING:
                space.pop(key, None)
            else:
                space[key] = value
        if space is not kernel.ns:
            kernel.ns.update((k, v) for k, v in space.items() if not k.startswith("__"))


# The namespace.


def user_names():
    return sorted(k for k in kernel.ns if not k.startswith("_"))


def who(args, scope):
    names = [k for k in user_names() if not args or type(kernel.ns[k]).__name__ in args.split()]
    print("\t".join(names) if names else "Interactive namespace is empty.")


def who_list(args, scope):
    return user_names()


def whos(args, scope):
    rows = [("Variable", "Type", "Data/Info")]
    for name in user_names():
        value = kernel.ns[name]
        try:
            info = repr(value) if not hasattr(value, "shape") else "shape %s" % (value.shape,)
        except Exception as e:
            info = "<%s>" % type(e).__name__
        info = " ".join(info[:400].split())
        rows.append((name, type(value).__name__, info if len(info) <= 60 else info[:57] + "..."))
    if len(rows) == 1:
        print("Interactive namespace is empty.")
        return
    wide = [max(len(row[i]) for row in rows) for i in (0, 1)]
    rows.insert(1, ("-" * wide[0], "-" * wide[1], "-" * 9))
    for row in rows:
        print("%-*s   %-*s   %s" % (wide[0], row[0], wide[1], row[1], row[2]))


def reset(args, scope):
    for name in [k for k in kernel.ns if not (k.startswith("__") and k.endswith("__"))]:
        del kernel.ns[name]
    kernel.forget()


def list_magics(args, scope):
    names = sorted(set(LINE) | set(ALIASES) | set(IGNORED))
    print("line: " + " ".join("%" + n for n in names))
    print("cell: " + " ".join("%%" + n for n in sorted(CELL)))


# Whole cells.


def script(program):
    def magic(args, body, row, scope):
        import shlex
        import tempfile

        words = shlex.split(args) if program is None else program
        if not words:
            raise UsageError("%%script needs a program")
        with tempfile.NamedTemporaryFile("w", suffix=".script", encoding="utf-8") as f:
            f.write(body + "\n")
            f.flush()
            child = start(words + [f.name] + (shlex.split(args) if program else []))
            status = attended(child, child.wait)
        if status:
            raise subprocess.CalledProcessError(status, words[0])

    return magic


def capture(args, body, row, scope):
    """Keep what the cell prints and shows in a variable instead of sending it."""
    import io

    name = ([""] + [word for word in args.split() if not word.startswith("-")])[-1]
    kept = Captured()
    before = sys.stdout, sys.stderr, kernel.captured
    sys.stdout, sys.stderr, kernel.captured = io.StringIO(), io.StringIO(), kept.outputs
    try:
        value = run_text(body, row)
        if value is not None:
            kernel.show(value)
        if "matplotlib.pyplot" in sys.modules:
            kernel.part("python_display").show_figures()
    finally:
        kept.stdout, kept.stderr = texts(sys.stdout), texts(sys.stderr)
        sys.stdout, sys.stderr, kernel.captured = before
        if name.isidentifier():
            kernel.ns[name] = kept


def texts(stream):
    return stream.getvalue() if hasattr(stream, "getvalue") else ""


class Captured:
    """What %%capture kept."""

    def __init__(self):
        self.stdout, self.stderr, self.outputs = "", "", []

    def __str__(self):
        return self.stdout

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for data in self.outputs:
            kernel.send_result(data, False)

    __call__ = show


def shown_as(kind):
    def magic(args, body, row, scope):
        kernel.part("python_display").publish({kind: body, "text/plain": "<%s>" % kind}, False)

    return magic


# Help.


def explain(name, more, scope=None):
    """Print what there is to know about an object: obj? and obj??"""
    scope = scope or Scope()
    if name.startswith("%"):
        known = name.lstrip("%") in LINE or name.lstrip("%") in CELL
        print("%s: %s" % (name, "a magic of this kernel" if known else "no such magic"))
        return
    try:
        value = scope.value(name)
    except Exception:
        print("Object `%s` not found." % name)
        return
    import inspect

    lines = []
    try:
        lines.append("Signature: %s%s" % (name, inspect.signature(value)))
    except (TypeError, ValueError):
        pass
    lines.append("Type: %s" % type(value).__name__)
    if not callable(value):
        text = repr(value)
        lines.append("Value: %s" % (text if len(text) <= 500 else text[:497] + "..."))
    source = ""
    if more:
        try:
            source = inspect.getsource(value)
        except (OSError, TypeError):
            pass
    if source:
        lines.append("Source:\n" + source.rstrip())
    else:
        lines.append("Docstring: %s" % (inspect.getdoc(value) or "<none>"))
    print("\n".join(lines))


def help_on(args, scope):
    explain(args.strip() or "help", False, scope)


IGNORED = set(
    "matplotlib load_ext reload_ext unload_ext autoreload config xmode colors gui precision "
    "config_inline automagic logstart logstop pylab".split()
)
ALIASES = {n: n for n in "ls cat cp mv rm mkdir rmdir head tail wc".split()}
ALIASES["ll"] = "ls -l"
LINE = {
    "time": time_line,
    "timeit": timeit_line,
    "pwd": pwd,
    "cd": cd,
    "env": env,
    "set_env": env,
    "pip": pip,
    "run": run_file,
    "who": who,
    "who_ls": who_list,
    "whos": whos,
    "reset": reset,
    "lsmagic": list_magics,
    "pinfo": help_on,
    "sx": lambda args, scope: output(args, scope),
    "system": lambda args, scope: output(args, scope),
}
CELL = {
    "time": time_cell,
    "timeit": timeit_cell,
    "capture": capture,
    "writefile": write_file,
    "file": write_file,
    "bash": script(["bash"]),
    "sh": script(["sh"]),
    "script": script(None),
    "python": script([sys.executable]),
    "python3": script([sys.executable]),
    "html": shown_as("text/html"),
    "HTML": shown_as("text/html"),
    "markdown": shown_as("text/markdown"),
    "latex": shown_as("text/latex"),
    "svg": shown_as("image/svg+xml"),
    "javascript": shown_as("application/javascript"),
    "js": shown_as("application/javascript"),
}
