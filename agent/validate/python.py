"""Looks at Python without running it. It is a cell of its own, sent before each
call, so that no earlier one matters; Python 3.8 and later."""


def _cubby_validate(encoded, marker):
    """Print marker and a JSON object about the code, which is base64 of UTF-8."""
    import ast
    import base64
    import json
    import re
    import warnings

    AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
    MAX_FACTS = 2000
    MAX_SAME = 20  # facts of one name
    MAX_NAME = 200
    MAX_WORDS = 20  # of a name with dots
    BUILTINS = {"eval", "exec", "compile", "__import__", "open", "globals", "locals", "vars", "breakpoint", "input"}
    GETTERS = {"getattr", "setattr", "delattr", "hasattr"}
    IMPORTERS = {"builtins.__import__", "importlib.import_module", "importlib.__import__"}
    FRAMES = {"f_globals", "f_locals", "f_builtins", "f_back", "f_code", "tb_frame", "gi_frame", "gi_code", "cr_frame", "ag_frame"}
    DUNDER = re.compile(r"__\w+__\Z")
    PYTHON_CELLS = {"time", "timeit", "capture", "prun"}
    SHELL_CELLS = {"bash", "sh", "script", "system", "sx", "!"}
    ASSIGN = re.compile(r"(\s*)([A-Za-z_][\w.\[\]'\", *]*?)\s*=\s*([!%].*)\Z", re.S)
    HELP = re.compile(r"\s*(\?{1,2}\s*[A-Za-z_%][\w.\[\]'\"]*|[A-Za-z_%][\w.\[\]'\"]*\s*\?{1,2})\s*;?\s*\Z")
    PIP = re.compile(r"\s*pip3?\s+(install|uninstall|list|show|freeze|download)\b")

    facts: list = []
    errors: list = []
    counts: dict = {}  # a fact, or "cut": how often

    def wanted(kind, name):
        """Count a fact; report whether it is to be told."""
        if len(counts) >= MAX_FACTS and (kind, name) not in counts:
            counts["cut"] = 1
            return False
        counts[kind, name] = counts.get((kind, name), 0) + 1
        return counts[kind, name] <= MAX_SAME

    def add(kind, name, line, column, detail=""):
        if len(facts) >= MAX_FACTS:
            counts["cut"] = 1
        else:
            facts.append({"kind": kind, "name": name[:MAX_NAME], "line": line, "column": column, "detail": detail})

    # Lines that are no Python but that kernels take.

    def brackets(line, state):
        """Follow strings and brackets; state is depth, open quote, continued."""
        depth, quote, _ = state
        i, n = 0, len(line)
        while i < n:
            c = line[i]
            if quote:
                if c == "\\":
                    i += 1
                elif line.startswith(quote, i):
                    i += 2
                    quote = ""
            elif c == "#":
                return depth, quote, False
            elif c in "'\"":
                if line.startswith(c * 3, i):
                    quote = c * 3
                    i += 2
                else:
                    i += 1
                    while i < n and line[i] != c:
                        i += 2 if line[i] == "\\" else 1
            elif c in "([{":
                depth += 1
            elif c in ")]}":
                depth = max(0, depth - 1)
            i += 1
        return depth, quote, not quote and line.endswith("\\")

    def magic(text, line, column):
        """Note a magic without its signs; return Python in its place, or None."""
        name, _, args = text.strip().partition(" ")
        args = args.strip()
        add("magic", name, line, column)
        if name in ("system", "sx"):
            add("shell", "", line, column, args)
        elif name in PYTHON_CELLS and args and not args.startswith("-"):
            try:
                compile(args, "<code>", "exec", ast.PyCF_ONLY_AST | AWAIT, True)
                return args
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        return None

    def plain(text):
        """Return the code with such lines replaced, in the same number of lines."""
        lines = text.split("\n")
        first = next((i for i, line in enumerate(lines) if line.strip()), None)
        if first is not None and lines[first].lstrip().startswith("%%"):
            name, _, args = lines[first].strip()[2:].partition(" ")
            column = len(lines[first]) - len(lines[first].lstrip()) + 1
            add("magic", name, first + 1, column)
            if name in PYTHON_CELLS:
                lines[first] = ""
                return plain("\n".join(lines))
            if name in SHELL_CELLS:
                add("shell", "", first + 1, column, "\n".join(lines[first + 1 :]))
            elif name == "writefile":
                add("use", "builtins.open", first + 1, column, "write")
            return "\n" * (len(lines) - 1)
        out, state, i = [], (0, "", False), 0
        while i < len(lines):
            line = lines[i]
            bare = line.lstrip()
            indent = line[: len(line) - len(bare)]
            column = len(indent) + 1
            last, new = i, None
            if not any(state):
                assign = ASSIGN.match(line)
                if bare.startswith(("!", "%")) or assign:
                    while lines[last].endswith("\\") and last + 1 < len(lines):
                        last += 1
                    line = "\n".join(lines[i : last + 1])
                    bare = line.lstrip()
                    assign = ASSIGN.match(line)
                if bare.startswith("!"):
                    add("shell", "", i + 1, column, bare.lstrip("!").strip())
                    new = indent + "pass"
                elif bare.startswith("%"):
                    new = indent + (magic(bare.lstrip("%"), i + 1, column) or "pass")
                elif PIP.match(line):
                    add("magic", "pip", i + 1, column)
                    new = indent + "pass"
                elif HELP.match(line):
                    new = indent + "pass"
                elif assign:
                    right = assign.group(3)
                    if right.startswith("!"):
                        add("shell", "", i + 1, assign.start(3) + 1, right.lstrip("!").strip())
                        right = "None"
                    else:
                        right = magic(right.lstrip("%"), i + 1, assign.start(3) + 1) or "None"
                    new = assign.group(1) + assign.group(2) + " = " + right
            if new is None:
                last = i
                state = brackets(lines[i], state)
                new = lines[i]
            out.append(new)
            out.extend([""] * (last - i))
            i = last + 1
        return "\n".join(out)

    def parse(text):
        return compile(text, "<code>", "exec", ast.PyCF_ONLY_AST | AWAIT, True)

    def read(text):
        """Return the tree and the text that it is of, as the kernels read cells."""
        try:
            return parse(text), text
        except SyntaxError as e:
            error = e
        lines = text.split("\n")
        first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
        if first[:1] in (" ", "\t"):
            try:
                tree = parse("if 1:\n" + text)
                if len(tree.body) == 1:
                    tree.body = tree.body[0].body
                    return ast.increment_lineno(tree, -1), text
            except SyntaxError:
                pass
            margin = first[: len(first) - len(first.lstrip())]
            text = "\n".join(line[len(margin) :] if line.startswith(margin) else line for line in lines)
        changed = plain(text)
        if changed == text:
            raise error
        return parse(changed), changed

    def text_of(node):
        """Return the value of a constant text, also where it is put together of some."""
        parts, stack = [], [node]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts.append(node.value)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                stack += [node.right, node.left]
            else:
                return None
        return "".join(parts)

    def look(tree, lines):
        names: dict = {}  # what imports and plain assignments call things
        stars, own = [], set()

        def place(node):
            line = getattr(node, "lineno", 0)
            offset = getattr(node, "col_offset", 0)
            if not 0 < line <= len(lines):
                return line, 0
            return line, len(lines[line - 1].encode("utf-8")[:offset].decode("utf-8", "replace")) + 1

        def note(kind, name, node, detail=""):
            if wanted(kind, name):
                line, column = place(node)
                add(kind, name, line, column, detail)

        def resolve(node):
            """Return the full name of what an expression is, or None."""
            words = []
            while True:
                if isinstance(node, ast.Attribute):
                    words.append(node.attr)
                    node = node.value
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1:
                    word = text_of(node.args[1])
                    if word is None:
                        return None
                    words.append(word)
                    node = node.args[0]
                else:
                    break
                if len(words) > MAX_WORDS:
                    return None
            root = None
            if isinstance(node, ast.Name):
                root = names.get(node.id)
                if root is None and node.id in BUILTINS and node.id not in own:
                    root = "builtins." + node.id
            elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) and node.args:
                depth = 0
                func: ast.AST = node.func
                while isinstance(func, ast.Attribute):
                    depth, func = depth + 1, func.value
                if depth < 4 and isinstance(func, ast.Name) and resolve(node.func) in IMPORTERS:
                    root = text_of(node.args[0])
            if root is None:
                return None
            return ".".join([root] + words[::-1])

        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        names[alias.asname] = alias.name
                    else:
                        names[alias.name.split(".")[0]] = alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    if alias.name == "*":
                        stars.append(node.module)
                    else:
                        names[alias.asname or alias.name] = "%s.%s" % (node.module, alias.name)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                own.add(node.name)
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = resolve(node.value)
                if name is not None and node.targets[0].id not in names:
                    names[node.targets[0].id] = name

        seen = set()  # parts of longer names
        modes: dict = {}  # names that are called as open is
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    note("import", alias.name, node)
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    note("relative", "." * min(node.level, 10) + (node.module or ""), node)
                    continue
                for alias in node.names:
                    note("import", str(node.module) + ("" if alias.name == "*" else "." + alias.name), node)
            elif isinstance(node, ast.Call):
                call(node, note, resolve, modes)
            elif isinstance(node, ast.Subscript):
                index = getattr(node.slice, "value") if type(node.slice).__name__ == "Index" else node.slice
                word = text_of(index)
                if word is not None and (DUNDER.match(word) or word in FRAMES):
                    note("dunder", word, node)
            if isinstance(node, ast.Attribute):
                if DUNDER.match(node.attr) or node.attr in FRAMES:
                    note("dunder", node.attr, node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if DUNDER.match(node.id) and node.id not in BUILTINS:
                    note("dunder", node.id, node)
            if isinstance(node, (ast.Attribute, ast.Name, ast.Call)) and id(node) not in seen:
                if not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
                    name = resolve(node)
                    if name is not None:
                        note("use", name, node, modes.get(id(node), ""))
                    elif isinstance(node, ast.Name) and node.id not in own and node.id not in names:
                        for module in stars[:10]:
                            note("use", "%s.%s" % (module, node.id), node, modes.get(id(node), ""))
                    if name is not None or isinstance(node, ast.Attribute):
                        inner: ast.AST = node
                        while name is not None and isinstance(inner, (ast.Attribute, ast.Call)):
                            if isinstance(inner, ast.Attribute):
                                inner = inner.value
                            else:
                                inner = inner.args[0] if isinstance(inner.func, ast.Name) and inner.func.id == "getattr" else inner.func
                            seen.add(id(inner))

    def call(node, note, resolve, modes):
        """Look at a call for what only its arguments tell."""
        func = node.func
        if isinstance(func, ast.Name) and func.id in GETTERS and len(node.args) > 1:
            word = text_of(node.args[1])
            if word is None:
                note("computed", func.id, node)
            elif DUNDER.match(word) or word in FRAMES:
                note("dunder", word, node)
            return
        name = resolve(func)
        if name in IMPORTERS and node.args:
            word = text_of(node.args[0])
            if word is not None:
                note("import", word, node)
        elif name in ("builtins.open", "io.open", "codecs.open"):
            mode = node.args[1] if len(node.args) > 1 else None
            for keyword in node.keywords:
                if keyword.arg == "mode":
                    mode = keyword.value
                elif keyword.arg is None:
                    return
            word = "r" if mode is None else text_of(mode)
            if word is not None:
                modes[id(func)] = "write" if set(word) & set("wax+") else "read"

    def check(text):
        tree, changed = read(text)
        compile(tree, "<code>", "exec", AWAIT, True)
        look(tree, changed.split("\n"))

    text = base64.b64decode(encoded).decode("utf-8-sig").replace("\r\n", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(text)
    except SyntaxError as e:
        errors.append({"type": type(e).__name__, "message": str(e.msg)[:500], "line": e.lineno or 0, "column": e.offset or 0})
    except (RecursionError, MemoryError) as e:
        errors.append({"type": type(e).__name__, "message": "the code is nested too deeply", "line": 0, "column": 0})
    except (ValueError, OverflowError) as e:
        errors.append({"type": type(e).__name__, "message": str(e)[:500], "line": 0, "column": 0})
    print(marker + json.dumps({"errors": errors, "facts": facts, "cut": "cut" in counts}), flush=True)
