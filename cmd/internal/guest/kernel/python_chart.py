"""What a matplotlib figure shows, as data: E2B's charts, which are sent with the picture.

A chart is {type, title, elements} and, where there are axes to read, their labels,
units, ticks and scales. Values that JSON has no form for become null. What E2B's
extractor (the package e2b_charts) makes of a figure is the same here, down to the names
of what has no label, except where it loses data or fails; the tests list those cases.
"""

import re
import sys
from datetime import date, timezone
from decimal import Decimal, localcontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel

MAX_POINTS = 200000  # points of one figure; a figure with more has no chart
UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def describe(figure):
    """Return the chart of a figure; {} if it shows nothing."""
    budget = Budget()
    charts = [chart(ax, budget) for ax in figure.axes if not helper(ax) and shown(ax)]
    if not charts:
        return {}
    title = text_of(getattr(figure, "_suptitle", None))
    if len(charts) == 1:
        charts[0]["title"] = charts[0]["title"] or title
        return charts[0]
    return {"type": "superchart", "title": title, "elements": charts}


class Budget(object):
    def __init__(self):
        self.left = MAX_POINTS

    def take(self, n):
        self.left -= n
        if self.left < 0:
            raise kernel.part("python_json").TooLarge("too many points")


def helper(ax):
    """Report whether axes are an aid to others, as a colour bar is."""
    return getattr(ax, "_colorbar", None) is not None or getattr(ax, "_label", "") == "<colorbar>"


def shown(ax):
    return ax.get_visible() and bool(marks(ax))


def marks(ax):
    """Return the artists drawn into axes, except texts."""
    text = sys.modules["matplotlib.text"].Text
    children = getattr(ax, "_children", None)
    if children is None:  # before matplotlib 3.5
        children = ax.lines + ax.patches + ax.collections + ax.images + ax.artists
    bars = error_bars(ax)
    return [c for c in children if not isinstance(c, text) and not any(c is b for b in bars)]


def error_bars(ax):
    """Return the artists of error bars, without the data line that they belong to."""
    found = []
    for container in ax.containers:
        if type(container).__name__ == "ErrorbarContainer":
            found += list(container[1] or ()) + list(container[2] or ())
    return found


def chart(ax, budget):
    found = marks(ax)
    if ax.name == "3d":  # its marks stand where they are projected to
        return {"type": "unknown", "title": text_of(ax.title), "elements": []}
    if drawn_boxes(ax):
        return flat(ax, "box_and_whisker", boxes(ax, budget), boxes_lie(ax))
    if every(found, "lines", "Line2D"):
        return with_ticks(ax, "line", [line(ax, drawn, budget) for drawn in data_lines(ax, found)])
    found = [m for m in found if not beside_the_point(m)]
    if every(found, "collections", "PathCollection"):
        return with_ticks(ax, "scatter", [scatter(ax, m, budget) for m in found])
    if every(found, "patches", "Wedge"):
        budget.take(len(found))
        return {"type": "pie", "title": text_of(ax.title), "elements": [wedge(w) for w in found]}
    if every(found, "patches", "Rectangle"):
        bars = bar_elements(ax, budget)
        if bars:
            return flat(ax, "bar", bars, all(map(lying, ax.containers)))
    return {"type": "unknown", "title": text_of(ax.title), "elements": []}


def every(found, module, name):
    kind = getattr(sys.modules.get("matplotlib." + module), name, None)
    return bool(found) and isinstance(kind, type) and all(isinstance(m, kind) for m in found)


def beside_the_point(mark):
    """Report whether a mark holds no data of its own: a straight guide line, a shadow."""
    if isinstance(mark, sys.modules["matplotlib.collections"].LineCollection):
        return True
    if isinstance(mark, sys.modules["matplotlib.patches"].Shadow):
        return True
    if not isinstance(mark, sys.modules["matplotlib.lines"].Line2D):
        return False
    return len(set(mark.get_xdata(orig=False))) <= 1 or len(set(mark.get_ydata(orig=False))) <= 1


def data_lines(ax, lines):
    """Return the lines that hold data, without guide lines such as axhline's.

    Like E2B, take each horizontal or vertical line between two points for a guide line.
    A figure that has only such lines is about them: then all are returned.
    """

    def leads(line):
        xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        return len(xs) == 2 and len(ys) == 2 and (xs[0] == xs[1] or ys[0] == ys[1])

    lines = [line for line in lines if line.get_transform() == ax.transData]
    return [line for line in lines if not leads(line)] or lines


# Axes.


def flat(ax, kind, elements, lying=False):
    """Return a chart with labelled axes; for horizontal bars or boxes the axes are swapped."""
    x, y = text_of(ax.xaxis.label), text_of(ax.yaxis.label)
    if lying:
        x, y = y, x
    return {
        "type": kind, "title": text_of(ax.title),
        "x_label": x, "y_label": y, "x_unit": unit(x), "y_unit": unit(y),
        "elements": elements,
    }


def with_ticks(ax, kind, elements):
    """Return a chart with labelled axes, ticks and scales."""
    chart = flat(ax, kind, elements)
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        ticks = list(axis.get_ticklocs())
        chart[name + "_ticks"] = [tick(axis, t) for t in ticks]
        chart[name + "_tick_labels"] = tick_labels(axis)
        chart[name + "_scale"] = scale(axis)
    return chart


def text_of(text):
    """Return the text of a matplotlib text, None if there is none."""
    return (text.get_text() if text is not None else "") or None


def unit(label):
    match = UNIT.search(label or "")
    if match is None:
        return None
    return match.group(1) if match.group(1) is not None else match.group(2)


def converter(axis):
    """Return the name of the class that turns the axis's values into numbers."""
    get = getattr(axis, "get_converter", None)
    made = get() if get is not None else getattr(axis, "converter", None)
    return type(made).__name__


def scale(axis):
    """Return the scale's name; dates and categories are scales of their own."""
    kind = converter(axis)
    if "Date" in kind or kind == "PeriodConverter":
        return "datetime"
    name = str(axis.get_scale())
    if categories(axis) or name == "linear" and named_ticks(axis):
        return "categorical"
    return name


def named_ticks(axis):
    """Report whether the ticks 0, 1, 2 and so on have been given names."""
    if type(axis.get_major_locator()).__name__ != "FixedLocator":
        return False
    ticks, names = list(axis.get_ticklocs()), tick_labels(axis)
    return bool(ticks) and ticks == list(range(len(ticks))) and not any(map(is_number, names))


def is_number(text):
    try:
        float(text.replace("\u2212", "-"))
        return True
    except ValueError:
        return False


def categories(axis):
    """Return number -> name of an axis of categories, {} of any other."""
    if converter(axis) != "StrCategoryConverter":
        return {}
    return {place: name for name, place in getattr(axis.units, "_mapping", {}).items()}


def tick(axis, place):
    if scale(axis) != "datetime":
        return number(place)
    place = number(place)
    return None if place is None else moment(axis, place).isoformat()


def tick_labels(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def coordinate(axis):
    """Return a function from a number on an axis to what it stands for."""
    if scale(axis) == "datetime":
        return lambda place: number(place) if number(place) is None else naive(moment(axis, place)).isoformat()
    names = categories(axis)
    if names:
        return lambda place: names.get(place, number(place))
    return number


def moment(axis, place):
    """Return what a number on an axis of dates stands for."""
    if converter(axis) == "PeriodConverter":  # pandas counts periods
        return sys.modules["pandas"].Period(ordinal=int(place), freq=axis.freq).to_timestamp()
    return sys.modules["matplotlib.dates"].num2date(place)


def naive(moment):
    """Return a moment without its zone, which nobody gave it, if that is UTC."""
    return moment.replace(tzinfo=None) if moment.tzinfo in (timezone.utc, UTC()) else moment


def UTC():
    return getattr(sys.modules.get("matplotlib.dates"), "UTC", timezone.utc)


def given(value, otherwise):
    """Return a value as it was plotted: a date as ISO text, a name, an exact number.

    What stands for anything else is made by otherwise, without arguments.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat() if value == value else None
    kind = type(value).__name__
    if kind == "datetime64":
        value = value.astype("datetime64[us]").item()
        return value.isoformat() if isinstance(value, date) else None
    if kind == "Period":
        return value.to_timestamp().isoformat()
    if hasattr(value, "dtype") and value.dtype.kind in "iuf" or isinstance(value, (int, float)):
        return number(value)
    return otherwise()


def number(value):
    """Return a value as a Python number, None if it is not a finite one.

    It is a float, as E2B has it, unless no float is exactly that number.
    """
    if hasattr(value, "item"):
        value = value.item()
    try:
        exact, value = value, float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(exact, int) and exact != value:
        return exact
    return value if value - value == 0 else None


def rounded(value, least):
    """Return a value without the noise of its last digits.

    E2B keeps 8 significant digits, less one for each digit of the number before the
    point but the first: 6 of 323.99999, 10 of 0.05. least keeps more of what is large.
    """
    value = number(value)
    if not isinstance(value, float):
        return value
    exact = Decimal(repr(value))
    with localcontext() as context:
        context.prec = max(least, 8 - exact.adjusted())
        return float(+exact)


# Elements.


def line(ax, mark, budget):
    xs, ys = mark.get_xdata(orig=False), mark.get_ydata(orig=False)
    pairs = points(ax, zip(xs, ys), len(xs), budget)
    # The values as plotted hold more (dates, categories) than the positions as drawn.
    for i, values in enumerate((mark.get_xdata(), mark.get_ydata())):
        if len(values) == len(pairs):
            for pair, value in zip(pairs, values):
                pair[i] = given(value, lambda: pair[i])
    return {"label": label_of(ax, mark), "points": pairs}


def label_of(ax, mark):
    """Return the name of a line; one with error bars has it from them."""
    label = str(mark.get_label())
    for container in ax.containers:
        if type(container).__name__ == "ErrorbarContainer" and container[0] is mark:
            label = str(container.get_label() or label)
    if label == "_nolegend_":
        label = "_child%d" % marks(ax).index(mark)
    return named(label, "_child", "Line")


def named(label, made, name):
    """Return a label, with what matplotlib made up for none under E2B's name."""
    number = label[len(made):]
    if label.startswith(made) and number.isdigit():
        return "%s %s" % (name, number)
    return label


def wedge(mark):
    angle = abs(Decimal(str(mark.theta2)) - Decimal(str(mark.theta1)))
    return {"label": str(mark.get_label()), "angle": rounded(float(angle), 1), "radius": number(mark.r)}


def scatter(ax, mark, budget):
    offsets = mark.get_offsets()
    return {"label": str(mark.get_label()), "points": points(ax, offsets, len(offsets), budget)}


def points(ax, pairs, n, budget):
    budget.take(n)
    x, y = coordinate(ax.xaxis), coordinate(ax.yaxis)
    return [[x(a), y(b)] for a, b in pairs]


def bar_elements(ax, budget):
    elements = []
    for container in ax.containers:
        bars = [p for p in getattr(container, "patches", ()) if hasattr(p, "get_height")]
        budget.take(len(bars))
        lies = lying(container)
        name = bar_names(ax.yaxis if lies else ax.xaxis)
        group = named(str(container.get_label() or ""), "_container", "Group")
        for bar in bars:
            middle = bar.get_y() + bar.get_height() / 2.0 if lies else bar.get_x() + bar.get_width() / 2.0
            value = bar.get_width() if lies else bar.get_height()
            elements.append({"label": name(middle), "group": group, "value": number(value)})
    return elements


def lying(container):
    return getattr(container, "orientation", "vertical") == "horizontal"


def bar_names(axis):
    """Return a function from the middle of a bar to its name."""
    names = categories(axis)
    if not names and type(axis.get_major_locator()).__name__ == "FixedLocator":
        names = dict(zip([number(t) for t in axis.get_ticklocs()], tick_labels(axis)))
        names.pop(None, None)
    if names:
        # Bars of several groups stand beside their tick.
        return lambda middle: names[min(names, key=lambda place: abs(place - middle))]
    if scale(axis) == "datetime":
        return lambda middle: day(naive(moment(axis, middle)))
    return lambda middle: "%.12g" % middle


def day(moment):
    """Return a moment as ISO text, without the time if that is midnight."""
    text = moment.isoformat()
    return text[:10] if text[10:] == "T00:00:00" else text


def boxes(ax, budget):
    elements = []
    for stats in drawn_boxes(ax):
        outliers = [rounded(v, 12) for v in stats.get("fliers", ())]
        budget.take(1 + len(outliers))
        element = {"label": str(stats.get("label", "")), "outliers": outliers}
        for name, key in (("min", "whislo"), ("first_quartile", "q1"), ("median", "med"),
                          ("third_quartile", "q3"), ("max", "whishi")):
            element[name] = rounded(stats.get(key), 12)
        elements.append(element)
    labels = tick_labels(ax.yaxis if boxes_lie(ax) else ax.xaxis)
    if not any(e["label"] for e in elements) and len(labels) == len(elements):
        for element, label in zip(elements, labels):
            element["label"] = label
    return elements


def drawn_boxes(ax):
    """Return the numbers of the boxes that are still on the axes."""
    there = marks(ax)
    return [stats for stats, median in getattr(ax, "_cubby_boxes", ()) if any(median is m for m in there)]


def boxes_lie(ax):
    """Report whether the boxes lie: then the line of a median is upright."""
    medians = [median for _, median in getattr(ax, "_cubby_boxes", ())]
    return all(len(set(m.get_xdata(orig=False))) == 1 for m in medians)


def adopt_axes(module):
    """Keep the numbers that boxes are drawn from: the drawing is only lines."""
    draw = module.Axes.bxp

    def bxp(self, bxpstats, *args, **options):
        stats = list(bxpstats)
        drawn = draw(self, stats, *args, **options)
        self._cubby_boxes = getattr(self, "_cubby_boxes", []) + list(zip(stats, drawn["medians"]))
        return drawn

    bxp.__doc__ = draw.__doc__
    module.Axes.bxp = bxp
