"""Four years of weather in Seattle: a table of months, and a chart.

Run it with:

    cubby run -f seattle-weather.csv -o out analysis.py

It uses Python's standard library only, so it works wherever Cubby does.
"""

import csv
import math
from collections import Counter, defaultdict
from statistics import mean

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()

with open("seattle-weather.csv", newline="") as f:
    days = list(csv.DictReader(f))
for day in days:
    day["year"], day["month"] = int(day["date"][:4]), int(day["date"][5:7])
    for field in ("precipitation", "temp_max", "temp_min", "wind"):
        day[field] = float(day[field])

by_month = defaultdict(list)
for day in days:
    by_month[day["month"]].append(day)
years = len({day["year"] for day in days})


def describe(month):
    """One row of the table: means over all years."""
    rows = by_month[month]
    return {
        "high": mean(d["temp_max"] for d in rows),
        "low": mean(d["temp_min"] for d in rows),
        "rain": sum(d["precipitation"] for d in rows) / years,
        "wet": sum(d["precipitation"] >= 1 for d in rows) / years,
        "sky": Counter(d["weather"] for d in rows).most_common(1)[0][0],
    }


summary = [describe(month) for month in range(1, 13)]


class Shown:
    """Something with a form that a reader can see, by MIME type."""

    def __init__(self, forms):
        self.forms = forms

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.forms


def table():
    """The months as Markdown, for a terminal, and as HTML."""
    head = ["month", "high °C", "low °C", "rain mm", "wet days", "mostly"]
    rows = [
        [MONTHS[i], f"{m['high']:.1f}", f"{m['low']:.1f}", f"{m['rain']:.0f}", f"{m['wet']:.0f}", m["sky"]]
        for i, m in enumerate(summary)
    ]
    width = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    text_column = (0, len(head) - 1)  # the others hold numbers

    def line(cells):
        cells = [c.ljust(w) if i in text_column else c.rjust(w) for i, (c, w) in enumerate(zip(cells, width))]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join(
        "-" * (w + 2) if i in text_column else "-" * (w + 1) + ":" for i, w in enumerate(width)
    ) + "|"
    markdown = "\n".join([line(head), rule, *map(line, rows)])

    style = "<style>table{border-collapse:collapse;font:14px system-ui,sans-serif}" \
        "th,td{padding:.35em .9em;text-align:right;border-bottom:1px solid #ddd}" \
        "th{color:#555;font-weight:600}th:first-child,td:first-child,th:last-child,td:last-child{text-align:left}</style>"
    cells = lambda tag, row: "<tr>" + "".join(f"<{tag}>{c}</{tag}>" for c in row) + "</tr>"
    html = f"{style}<table>{cells('th', head)}{''.join(cells('td', row) for row in rows)}</table>"
    return Shown({"text/plain": markdown, "text/markdown": markdown, "text/html": html})


INK, MUTED, GRID, RAIN, LINE, BAND = "#22303c", "#6b7a88", "#e6eaee", "#8fbcdb", "#c8452f", "#f0b9a8"


def chart():
    """Rain as bars; the range between mean low and mean high as a band."""
    width, height, left, right, top, bottom = 860, 470, 62, 62, 96, 56
    inner_w, inner_h = width - left - right, height - top - bottom
    step = inner_w / 12
    rain_top = math.ceil(max(m["rain"] for m in summary) / 50) * 50
    temp_top = math.ceil(max(m["high"] for m in summary) / 5) * 5
    x = lambda i: left + (i + 0.5) * step
    rain_y = lambda v: top + inner_h * (1 - v / rain_top)
    temp_y = lambda v: top + inner_h * (1 - v / temp_top)
    out = []

    def text(px, py, words, size=12, fill=MUTED, anchor="middle", weight=400):
        out.append(f'<text x="{px:.1f}" y="{py:.1f}" font-size="{size}" fill="{fill}" '
                   f'text-anchor="{anchor}" font-weight="{weight}">{words}</text>')

    def smooth(points):
        """A curve through the points (Catmull-Rom as Bézier)."""
        path = f"{points[0][0]:.1f},{points[0][1]:.1f}"
        for i in range(len(points) - 1):
            p0, p1, p2, p3 = points[max(i - 1, 0)], points[i], points[i + 1], points[min(i + 2, len(points) - 1)]
            c1 = (p1[0] + (p2[0] - p0[0]) / 6, p1[1] + (p2[1] - p0[1]) / 6)
            c2 = (p2[0] - (p3[0] - p1[0]) / 6, p2[1] - (p3[1] - p1[1]) / 6)
            path += f" C{c1[0]:.1f},{c1[1]:.1f} {c2[0]:.1f},{c2[1]:.1f} {p2[0]:.1f},{p2[1]:.1f}"
        return path

    text(left, 36, "Dry, warm summers and wet, mild winters", 21, INK, "start", 600)
    text(left, 60, f"Seattle by month, means of {min(d['year'] for d in days)} to {max(d['year'] for d in days)}",
         13, MUTED, "start")
    lines = 5
    for i in range(lines + 1):
        y = top + inner_h * i / lines
        share = 1 - i / lines
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        text(left - 10, y + 4, f"{rain_top * share:.0f}", anchor="end")
        text(width - right + 10, y + 4, f"{temp_top * share:.0f}°", anchor="start")
    text(left - 10, top - 14, "mm", anchor="end")
    text(width - right + 10, top - 14, "°C", anchor="start")

    for i, m in enumerate(summary):
        y = rain_y(m["rain"])
        out.append(f'<rect x="{x(i) - step * .3:.1f}" y="{y:.1f}" width="{step * .6:.1f}" '
                   f'height="{top + inner_h - y:.1f}" rx="3" fill="{RAIN}"/>')
        text(x(i), top + inner_h + 22, MONTHS[i], 13, INK)
    high = [(x(i), temp_y(m["high"])) for i, m in enumerate(summary)]
    low = [(x(i), temp_y(m["low"])) for i, m in enumerate(summary)]
    out.append(f'<path d="M{smooth(high)} L{smooth(low[::-1])} Z" fill="{BAND}" fill-opacity=".45"/>')
    for points, dash in ((high, ""), (low, ' stroke-dasharray="5 4"')):
        out.append(f'<path d="M{smooth(points)}" fill="none" stroke="{LINE}" stroke-width="2.5"{dash}/>')
    out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="#fff" stroke="{LINE}" stroke-width="2"/>'
            for px, py in high]

    legend = [(f'<rect x="0" y="-10" width="14" height="12" rx="2" fill="{RAIN}"/>', "rain", 64),
              (f'<path d="M0,-4 H22" stroke="{LINE}" stroke-width="2.5"/>', "mean high", 114),
              (f'<path d="M0,-4 H22" stroke="{LINE}" stroke-width="2.5" stroke-dasharray="5 4"/>', "mean low", 100)]
    px = width - right - sum(w for _, _, w in legend) + 14
    for mark, words, advance in legend:
        out.append(f'<g transform="translate({px:.0f},60)">{mark}</g>')
        text(px + (22 if words == "rain" else 30), 60, words, 13, INK, "start")
        px += advance
    text(left, height - 12, "Source: NOAA National Climatic Data Center", 11, MUTED, "start")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(out)}</svg>')


def show(thing):
    """In a sandbox `display` is there; elsewhere the text will do."""
    try:
        display(thing)
    except NameError:
        print(thing.forms["text/plain"])


wettest = max(range(12), key=lambda i: summary[i]["rain"])
driest = min(range(12), key=lambda i: summary[i]["rain"])
hottest = max(days, key=lambda d: d["temp_max"])
print(f"{len(days)} days, {days[0]['date']} to {days[-1]['date']}\n")
show(table())
print(f"\nWettest month {MONTHS[wettest]} ({summary[wettest]['rain']:.0f} mm), "
      f"driest {MONTHS[driest]} ({summary[driest]['rain']:.0f} mm); "
      f"hottest day {hottest['date']} ({hottest['temp_max']:.1f} °C).")

with open("months.csv", "w", newline="") as f:
    out = csv.writer(f)
    out.writerow(["month", "mean_high_c", "mean_low_c", "rain_mm", "wet_days"])
    out.writerows([MONTHS[i], *(round(m[k], 2) for k in ("high", "low", "rain", "wet"))] for i, m in enumerate(summary))

show(Shown({"text/plain": "a chart of the months", "image/svg+xml": chart()}))
