"""What a matplotlib figure shows, as data: E2B's charts beside the picture.

A chart is {type, title, elements} and, where there are axes to read, their labels,
units, ticks and scales. Values that JSON has no form for become null.
"""

import re
import sys

MAX_POINTS = 200000  # points of one figure; a figure with more has no chart
UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


class TooLarge(Exception):
    pass


def describe(figure):
    """Return the chart of a figure; {} if it shows nothing, None if it is too large."""
    budget = Budget()
    try:
        charts = [chart(ax, budget) for ax in figure.axes if not helper(ax) and shown(ax)]
    except TooLarge:
        return None
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
            raise TooLarge()


def helper(ax):
    """Report whether axes only explain others, as those of a colour bar do."""
    return getattr(ax, "_colorbar", None) is not None or getattr(ax, "_label", "") == "<colorbar>"


def shown(ax):
    return ax.get_visible() and bool(marks(ax))


def marks(ax):
    """Return what was drawn into axes, without words."""
    text = sys.modules["matplotlib.text"].Text
    children = getattr(ax, "_children", None)
    if children is None:  # before matplotlib 3.5
        children = ax.lines + ax.patches + ax.collections + ax.images + ax.artists
    bars = error_bars(ax)
    return [c for c in children if not isinstance(c, text) and not any(c is b for b in bars)]


def error_bars(ax):
    """Return what error bars are drawn with, without the line that they are about."""
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
        return flat(ax, "box_and_whisker", boxes(ax, budget))
    if every(found, "lines", "Line2D"):
        return with_ticks(ax, "line", [line(ax, l, budget) for l in found])
    found = [m for m in found if not beside_the_point(m)]
    if every(found, "collections", "PathCollection"):
        return with_ticks(ax, "scatter", [scatter(ax, m, budget) for m in found])
    if every(found, "patches", "Wedge"):
        budget.take(len(found))
        slices = [
            {"label": str(w.get_label()), "angle": number(abs(w.theta2 - w.theta1)), "radius": number(w.r)} for w in found
        ]
        return {"type": "pie", "title": text_of(ax.title), "elements": slices}
    if every(found, "patches", "Rectangle"):
        bars = bar_elements(ax, budget)
        if bars:
            return flat(ax, "bar", bars)
    return {"type": "unknown", "title": text_of(ax.title), "elements": []}


def every(found, module, name):
    kind = getattr(sys.modules.get("matplotlib." + module), name, None)
    return bool(found) and isinstance(kind, type) and all(isinstance(m, kind) for m in found)


def beside_the_point(mark):
    """Report whether a mark is a straight line across the axes."""
    if isinstance(mark, sys.modules["matplotlib.collections"].LineCollection):
        return True
    if not isinstance(mark, sys.modules["matplotlib.lines"].Line2D):
        return False
    return len(set(mark.get_xdata(orig=False))) <= 1 or len(set(mark.get_ydata(orig=False))) <= 1


# Axes.


def flat(ax, kind, elements):
    """Return a chart with labelled axes."""
    x, y = text_of(ax.xaxis.label), text_of(ax.yaxis.label)
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
    if categories(axis):
        return "categorical"
    return str(axis.get_scale())


def categories(axis):
    """Return number -> name of an axis of categories, {} of any other."""
    if converter(axis) != "StrCategoryConverter":
        return {}
    return {place: name for name, place in getattr(axis.units, "_mapping", {}).items()}


def tick(axis, place):
    return moments(axis)(place) if scale(axis) == "datetime" else number(place)


def tick_labels(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def coordinate(axis):
    """Return a function from a number on an axis to what it stands for."""
    if scale(axis) == "datetime":
        return moments(axis)
    names = categories(axis)
    if names:
        return lambda place: names.get(place, number(place))
    return number


def moments(axis):
    """Return a function from a number on an axis of dates to the date as ISO text."""
    if converter(axis) == "PeriodConverter":  # pandas counts periods
        period = sys.modules["pandas"].Period
        make = lambda place: period(ordinal=int(place), freq=axis.freq).to_timestamp()
    else:
        make = sys.modules["matplotlib.dates"].num2date

    def moment(place):
        place = number(place)
        return None if place is None else make(place).isoformat()

    return moment


def number(value):
    """Return a value as a Python number, None if it is not a finite one."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            value = float(value)
        except (TypeError, ValueError):
            return None
    return value if value - value == 0 else None


# Elements.


def line(ax, mark, budget):
    xs, ys = mark.get_xdata(orig=False), mark.get_ydata(orig=False)
    return {"label": label_of(ax, mark), "points": points(ax, zip(xs, ys), len(xs), budget)}


def label_of(ax, mark):
    """Return the name of a line; one with error bars has it from them."""
    for container in ax.containers:
        if type(container).__name__ == "ErrorbarContainer" and container[0] is mark:
            return str(container.get_label() or mark.get_label())
    return str(mark.get_label())


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
        lying = getattr(container, "orientation", "vertical") == "horizontal"
        axis = ax.yaxis if lying else ax.xaxis
        name = bar_names(axis)
        for bar in bars:
            middle = bar.get_y() + bar.get_height() / 2.0 if lying else bar.get_x() + bar.get_width() / 2.0
            value = bar.get_width() if lying else bar.get_height()
            elements.append({"label": name(middle), "group": str(container.get_label() or ""), "value": number(value)})
    return elements


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
        return moments(axis)
    return lambda middle: "%g" % middle


def boxes(ax, budget):
    elements = []
    for stats in drawn_boxes(ax):
        outliers = [number(v) for v in stats.get("fliers", ())]
        budget.take(1 + len(outliers))
        element = {"label": str(stats.get("label", "")), "outliers": outliers}
        for name, key in (("min", "whislo"), ("first_quartile", "q1"), ("median", "med"),
                          ("third_quartile", "q3"), ("max", "whishi")):
            element[name] = number(stats.get(key))
        elements.append(element)
    labels = tick_labels(ax.xaxis)
    if not any(e["label"] for e in elements) and len(labels) == len(elements):
        for element, label in zip(elements, labels):
            element["label"] = label
    return elements


def drawn_boxes(ax):
    """Return the numbers of the boxes that are still on the axes."""
    there = marks(ax)
    return [stats for stats, median in getattr(ax, "_cubby_boxes", ()) if any(median is m for m in there)]


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
