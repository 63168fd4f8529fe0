# Computes an expression without running it as Python: the syntax tree is walked,
# and what is not on a list is refused.
def _cubby_math(encoded, mark):
    import ast, base64, json, math, operator, warnings

    MAX_BITS = 13_000  # of an integer: below 4,000 digits
    MAX_ITEMS = 1_000_000
    MAX_DEPTH = 100

    class Refused(Exception):
        pass

    def bits(x):
        return x.bit_length() if isinstance(x, int) else 0

    def whole(x, most, what):
        if isinstance(x, int) and abs(x) > most:
            raise Refused(f"{what} beyond {most:,} is too much")

    def power(a, b, *mod):
        if mod:
            return pow(a, b, *mod)
        if isinstance(a, int) and isinstance(b, int) and bits(a) * max(b, 0) > MAX_BITS and abs(a) > 1:
            raise Refused("the result has more than 4,000 digits: use a float, such as 10.0 ** 300")
        return a**b

    def multiply(a, b):
        if bits(a) + bits(b) > MAX_BITS:
            raise Refused("the result has more than 4,000 digits")
        return a * b

    def span(*args):
        r = range(*args)
        # len() of a range fails where it is longer than a C integer.
        if (r.stop - r.start) // r.step > MAX_ITEMS:
            raise Refused(f"a range of more than {MAX_ITEMS:,} numbers is too much")
        return r

    def small(f, most, name):
        def call(*args):
            for x in args:
                whole(x, most, f"an argument of {name}")
            return f(*args)
        return call

    def small_second(f, most, name):
        def call(x, *rest):
            for n in rest:
                whole(n, most, f"the second argument of {name}")
            return f(x, *rest)
        return call

    def product(numbers):
        out = 1
        for x in numbers:
            out = multiply(out, x)
        return out

    def fold(f, name):
        def call(*args):
            for x in args:
                whole(x, 10**300, f"an argument of {name}")
            return f(*args)
        return call

    names = {n: getattr(math, n) for n in ("pi", "e", "tau", "inf", "nan")}
    functions = {n: getattr(math, n) for n in (
        "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
        "degrees radians hypot floor ceil trunc fabs fmod remainder modf copysign gcd isqrt dist fsum erf erfc gamma lgamma "
        "isfinite isinf isnan isclose").split() if hasattr(math, n)}
    functions.update({
        "abs": abs, "round": small_second(round, 400, "round"), "min": min, "max": max, "sum": sum, "len": len, "range": span, "pow": power,
        "int": lambda x: int(number(x)), "float": lambda x: float(number(x)), "prod": product,
        "factorial": small(math.factorial, 1400, "factorial"),
        "comb": small(math.comb, 5000, "comb"), "perm": small(math.perm, 1000, "perm"),
    })
    if hasattr(math, "lcm"):
        functions["lcm"] = fold(math.lcm, "lcm")
    operators: dict = {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: multiply, ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: power,
    }
    comparisons: dict = {
        ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    }

    def number(x):
        if type(x) not in (int, float, bool):
            raise Refused("a number is needed here, not a list" if not isinstance(x, complex) else "the value is not a real number")
        return x

    def value(node, depth=0):
        at = getattr(node, "col_offset", -1) + 1
        if depth > MAX_DEPTH:
            raise Refused("it is nested too deeply", at)
        try:
            x = compute(node, depth + 1)
        except Refused as e:
            if len(e.args) < 2:
                e.args = (e.args[0], at)
            raise
        if bits(x) > MAX_BITS:
            raise Refused("the result has more than 4,000 digits", at)
        return x

    def compute(node, depth):
        if isinstance(node, ast.Constant):
            if type(node.value) not in (int, float):
                raise Refused("only numbers can be computed with")
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in names:
                advice = ": call it, with brackets" if node.id in functions else ""
                raise Refused(f"{node.id[:40]} is not a number that is known here" + advice)
            return names[node.id]
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "math" and node.attr in names:
                return names[node.attr]
            raise Refused("only names of math can follow a dot")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            x = number(value(node.operand, depth))
            return -x if isinstance(node.op, ast.USub) else +x
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.BitXor):
                raise Refused("^ is no power here: write **")
            if type(node.op) not in operators:
                raise Refused("there is no such operator here: + - * / // % **")
            a, b = number(value(node.left, depth)), number(value(node.right, depth))
            return number(operators[type(node.op)](a, b))
        if isinstance(node, ast.Compare):
            left = number(value(node.left, depth))
            for op, right in zip(node.ops, node.comparators):
                if type(op) not in comparisons:
                    raise Refused("there is no such comparison here")
                right = number(value(right, depth))
                if not comparisons[type(op)](left, right):
                    return False
                left = right
            return True
        if isinstance(node, (ast.List, ast.Tuple)):
            return [value(x, depth) for x in node.elts]
        if isinstance(node, ast.Call):
            f = node.func
            if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "math":
                name = f.attr
            elif isinstance(f, ast.Name):
                name = f.id
            else:
                raise Refused("only functions of math can be called")
            if name not in functions:
                raise Refused(f"there is no function {name[:40]} here")
            if node.keywords:
                raise Refused("arguments have no names here")
            return functions[name](*[value(x, depth) for x in node.args])
        raise Refused("only numbers, operators and functions of math can be computed with")

    def answer(text):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(text.strip(), mode="eval")
            except SyntaxError as e:
                hint = ": for powers write **" if "^" in text else ""
                return {"reason": f"it is not an expression: {e.msg}{hint}", "column": e.offset or 0}
            except (ValueError, MemoryError, RecursionError) as e:
                return {"reason": f"it is not an expression: {e}"}
            try:
                x = value(tree.body)
                if isinstance(x, range):
                    raise Refused("a range is no number: take its sum, for example")
                if isinstance(x, complex):
                    raise Refused("the value is not a real number")
                return {"value": repr(x)}
            except Refused as e:
                return {"reason": e.args[0], "column": e.args[1] if len(e.args) > 1 else 0}
            except ZeroDivisionError:
                return {"reason": "division by zero"}
            except Exception as e:
                return {"reason": f"{type(e).__name__}: {e}"}

    print("\n" + mark + json.dumps(answer(base64.b64decode(encoded).decode("utf-8", "replace"))), flush=True)
