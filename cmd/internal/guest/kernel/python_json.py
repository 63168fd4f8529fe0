"""JSON of Python values: what E2B's kernels give for lists and dicts, and a little more.

Numbers keep every digit. What JSON has no number for (nan, inf) becomes null. Arrays,
frames, dates, sets and the like are written as what they hold; a value that has no
such form, such as bytes or an object of the user's, makes the whole a TypeError.
"""

import json
import sys

MAX_CELLS = 200000  # values of the arrays and frames in one value
MAX_DEPTH = 250
NAMED = ("UUID", "Decimal", "Fraction", "timedelta", "Timedelta", "Period", "Interval")  # their text says it all
LISTED = ("set", "frozenset", "range", "deque", "dict_keys", "dict_values")


class TooLarge(TypeError):
    """Raised when the JSON of a value would exceed its limit."""


def text_of(value):
    """Return a value as JSON, in ASCII without spaces; raise TypeError if JSON cannot represent it."""
    room = Room()
    write = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=room.form)
    try:
        return write.encode(value)
    except (TypeError, ValueError):
        pass  # a key that is no text, nan, a value that holds itself
    return write.encode(Room().tree(value, 0))


def frame_data(frame):
    """Return column name -> list of values."""
    if frame.shape[0] * max(frame.shape[1], 1) > MAX_CELLS:
        raise TooLarge("too large for JSON")
    return {str(name): cells(frame.iloc[:, i].tolist()) for i, name in enumerate(frame.columns)}


def cells(values):
    return [cell(value) for value in values]


def cell(value):
    """Return a value of a data frame; one that JSON cannot represent becomes its text."""
    kind = type(value)
    if kind is float:
        return value if value - value == 0 else None  # neither nan nor infinite
    if value is None or kind is int or kind is str or kind is bool:
        return value
    try:
        return Room().tree(value, 0)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def is_a(value, module, *names):
    """Report isinstance without importing the module."""
    module = sys.modules.get(module)
    kinds = [getattr(module, name, None) for name in names]
    return any(isinstance(kind, type) and isinstance(value, kind) for kind in kinds)


class Room:
    """Turns values into what the json module writes, up to a size."""

    def __init__(self):
        self.left = MAX_CELLS

    def take(self, n):
        self.left -= n
        if self.left < 0:
            raise TooLarge("too large for JSON")

    def tree(self, value, depth):
        """Return a copy of a value that consists of nothing but what JSON has."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        self.take(1)
        if depth > MAX_DEPTH:
            raise TypeError("nested too deep for JSON")
        if isinstance(value, float):
            return value if value - value == 0 else None
        if isinstance(value, dict):
            return {key_of(k): self.tree(v, depth + 1) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(v, depth + 1) for v in value]
        return self.tree(self.form(value), depth + 1)

    def form(self, value):
        """Return the JSON representation of a value of a type that JSON does not have."""
        kind = type(value).__name__
        if is_a(value, "numpy", "ndarray", "generic"):
            return self.array(value)
        if kind in ("NaTType", "NAType"):
            return None
        if is_a(value, "pandas", "DataFrame"):
            self.take(value.shape[0] * max(value.shape[1], 1))
            return frame_data(value)
        if is_a(value, "pandas", "Series", "Index"):
            self.take(len(value))
            return cells(value.tolist())
        if kind in LISTED:
            self.take(len(value))
            return ordered(value) if "set" in kind else list(value)
        if is_a(value, "enum", "Enum"):
            return value.value
        if kind in NAMED or is_a(value, "pathlib", "PurePath"):
            return str(value)
        if is_a(value, "datetime", "date", "time"):
            return value.isoformat()
        fields = getattr(type(value), "__dataclass_fields__", None)
        if isinstance(fields, dict):
            return {name: getattr(value, name) for name in fields}
        raise TypeError("no JSON for a %s" % kind)

    def array(self, value):
        """Return the values of a numpy array or scalar, as Python's own."""
        kind, size = value.dtype.kind, value.dtype.itemsize
        self.take(value.size)
        if kind == "M":
            return each(value.astype("datetime64[us]").tolist(), moment)
        if kind == "f" and size < 8:  # as many digits as it has
            return each(value.tolist(), sys.modules["numpy"].dtype(value.dtype).type, str, float)
        if kind == "f" and size > 8:
            return value.astype("float64").tolist()
        if kind in "biufUO":
            return value.tolist()
        raise TypeError("no JSON for an array of %s" % value.dtype)


def each(values, *steps):
    if isinstance(values, list):
        return [each(v, *steps) for v in values]
    for step in steps:
        values = step(values)
    return values


def moment(value):
    if isinstance(value, int):  # beyond the years that Python's dates have
        return str(sys.modules["numpy"].datetime64(value, "us"))
    return None if value is None else value.isoformat()


def ordered(values):
    try:
        return sorted(values)
    except TypeError:
        return list(values)


def key_of(key):
    """Return a key of a dict as the json module takes it."""
    if key is None or isinstance(key, (str, bool, int, float)):
        return key if not isinstance(key, float) else float.__repr__(key)
    key = Room().form(key)
    if isinstance(key, (list, dict)):
        raise TypeError("no JSON for this key")
    return key_of(key)
