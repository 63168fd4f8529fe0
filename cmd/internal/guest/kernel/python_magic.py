"""Cells that are not plain Python: magics, shell lines, help, indentation.

Only code that does not compile comes here. Rewritten lines keep their numbers.
"""

import builtins
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel

ASSIGN = re.compile(r"^(\s*)((?:[A-Za-z_][\w.\[\]'\", *]*?)\s*=\s*)([!%].*)$", re.S)
HELP = re.compile(r"^(\s*)(\?{1,2})?\s*([A-Za-z_%][\w.\[\]'\"]*)\s*(\?{1,2})?\s*;?\s*$")
PIP = re.compile(r"^(\s*)pip3?\s+(?:install|uninstall|list|show|freeze|download)\b")


def rescue(code, name, error):
    """Return (tree, text) of a cell that is no plain Python, or raise its error.

    error is the SyntaxError of the plain attempt.
    """
    text = code.replace("\r\n", "\n")
    lines = [line for line in text.split("\n") if line.strip()]
    first = next((line for line in lines if not line.lstrip().startswith("#")), "")
    indented = first[:1] in (" ", "\t")
    if indented:
        tree = unwrap(text, name)
        if tree is not None:
            return tree, text
    changed = cell_magic(text)
    if changed is None:
        changed = line_magics(dedent(text, first) if indented else text)
    if changed is None or changed == code:
        raise error.with_traceback(None)
    builtins.__dict__["__cubby__"] = kernel.part("python_commands")
    return kernel.parse(changed, name), changed


def unwrap(text, name):
    """Parse a cell that is indented as a whole, without touching its strings."""
    try:
        tree = kernel.parse("if 1:\n" + text, name)
    except SyntaxError:
        return None
    if len(tree.body) != 1:
        return None
    tree.body = tree.body[0].body
    import ast

    return ast.increment_lineno(tree, -1)


def dedent(text, first):
    """Remove the indentation of the first line from every line that has it."""
    margin = first[: len(first) - len(first.lstrip())]
    out = []
    for line in text.split("\n"):
        out.append(line[len(margin) :] if line.startswith(margin) else line)
    return "\n".join(out)


def cell_magic(text):
    """Rewrite a cell whose first line is %%name arguments."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        if not line.lstrip().startswith("%%"):
            return None
        name, _, args = line.strip()[2:].partition(" ")
        body = "\n".join(lines[i + 1 :])
        return "\n" * i + "__cubby__.cell(%r, %r, %r, %d)" % (name, args.strip(), body, i + 1)
    return None


def line_magics(text):
    """Rewrite the lines that are magics; None if there is none."""
    lines = text.split("\n")
    scan = Scanner()
    out, changed, i = [], False, 0
    while i < len(lines):
        if not scan.fresh():
            scan.feed(lines[i])
            out.append(lines[i])
            i += 1
            continue
        last = i  # a shell line may go on after a backslash
        while lines[last].endswith("\\") and last + 1 < len(lines):
            last += 1
        line = "\n".join(lines[i : last + 1])
        new = rewrite(line)
        if new is None:
            scan.feed(lines[i])
            out.append(lines[i])
            i += 1
            continue
        changed = True
        out.append(new)
        out.extend([""] * (last - i))
        i = last + 1
    return "\n".join(out) if changed else None


def rewrite(line):
    """Return one line as plain Python, or None if it is that already."""
    bare = line.lstrip()
    indent = line[: len(line) - len(bare)]
    bare = bare.replace("\\\n", " ") if bare.startswith("%") else bare
    if bare.startswith("!!"):
        return "%s__cubby__.output(%r)" % (indent, bare[2:].strip())
    if bare.startswith("!"):
        return "%s__cubby__.system(%r)" % (indent, bare[1:].strip())
    if bare.startswith("%"):
        name, _, args = bare.lstrip("%").strip().partition(" ")
        if name.endswith("?"):
            return "%s__cubby__.explain(%r, False)" % (indent, "%" + name.rstrip("?"))
        return "%s__cubby__.line(%r, %r)" % (indent, name, args.strip())
    if PIP.match(line):
        return "%s__cubby__.line('pip', %r)" % (indent, bare.split(None, 1)[1])
    if "?" in bare:
        m = HELP.match(line)
        if m and (m.group(2) or m.group(4)):
            more = "??" in (m.group(2), m.group(4))
            return "%s__cubby__.explain(%r, %r)" % (indent, m.group(3), more)
        return None
    m = ASSIGN.match(line)
    if m:
        target, right = m.group(1) + m.group(2), m.group(3)
        if right.startswith("!"):
            return "%s__cubby__.output(%r)" % (target, right.lstrip("!").strip())
        name, _, args = right[1:].strip().partition(" ")
        return "%s__cubby__.line(%r, %r)" % (target, name, args.strip())
    return None


class Scanner:
    """Knows whether the next line begins a statement."""

    def __init__(self):
        self.depth = 0  # open brackets
        self.quote = ""  # delimiter of an open triple-quoted string
        self.joined = False  # the line before ended in a backslash

    def fresh(self):
        return not (self.depth or self.quote or self.joined)

    def feed(self, line):
        i, n = 0, len(line)
        self.joined = False
        while i < n:
            c = line[i]
            if self.quote:
                if c == "\\":
                    i += 2
                elif line.startswith(self.quote, i):
                    i += 3
                    self.quote = ""
                else:
                    i += 1
                continue
            if c == "#":
                return
            if c in "'\"":
                if line.startswith(c * 3, i):
                    self.quote = c * 3
                    i += 3
                    continue
                i += 1
                while i < n and line[i] != c:
                    i += 2 if line[i] == "\\" else 1
            elif c in "([{":
                self.depth += 1
            elif c in ")]}":
                self.depth = max(0, self.depth - 1)
            i += 1
        self.joined = not self.quote and line.endswith("\\")
