package kernel_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// charts are what cells draw and what E2B's clients read beside the picture. The
// fields that are wanted are given; those not given may be anything.
var charts = []struct{ name, code, want string }{
	{"line", `plt.plot([1, 2, 3], [2, 4, float('nan')], label='rise')
plt.title('A line'); plt.xlabel('Time (s)'); plt.ylabel('Speed [km/h]')`, `{
	"type": "line", "title": "A line", "x_label": "Time (s)", "x_unit": "s", "y_label": "Speed [km/h]", "y_unit": "km/h",
	"x_scale": "linear", "y_scale": "linear", "elements": [{"label": "rise", "points": [[1, 2], [2, 4], [3, null]]}]}`},
	{"line without words", "plt.plot([5])", `{"type": "line", "title": null, "x_label": null, "y_label": null, "x_unit": null, "y_unit": null,
	"elements": [{"label": "Line 0", "points": [[0, 5]]}]}`},
	{"ticks", "plt.plot([1, 2]); plt.xticks([0, 1], ['low', 'high'])", `{"type": "line", "x_ticks": [0, 1], "x_tick_labels": ["low", "high"], "x_scale": "categorical"}`},
	{"ticks at numbers", "plt.plot([1, 2]); plt.xticks([0, 1, 2])", `{"type": "line", "x_ticks": [0, 1, 2], "x_scale": "linear"}`},
	{"scales", "plt.plot([1, 10], [1, 100]); plt.xscale('log'); plt.yscale('symlog')", `{"type": "line", "x_scale": "log", "y_scale": "symlog"}`},
	{"dates", `import datetime
plt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2])`, `{"type": "line", "x_scale": "datetime",
	"elements": [{"label": "Line 0", "points": [["2024-01-01", 1], ["2024-01-02", 2]]}]}`},
	{"times", `import numpy as np
plt.plot([datetime.datetime(2024, 1, 1, 2), datetime.datetime(2024, 1, 2)], [1, 2]); plt.plot(np.array(['2024-01-01', '2024-01-02T03:04'], 'M8[ns]'), [3, 4])`, `{
	"type": "line", "x_scale": "datetime", "elements": [
	{"label": "Line 0", "points": [["2024-01-01T02:00:00", 1], ["2024-01-02T00:00:00", 2]]}, {"label": "Line 1", "points": [["2024-01-01T00:00:00", 3], ["2024-01-02T03:04:00", 4]]}]}`},
	{"dates as dots", `plt.scatter([datetime.date(2024, 1, 1)], [1])`, `{"type": "scatter", "x_scale": "datetime", "elements": [{"points": [["2024-01-01T00:00:00", 1]]}]}`},
	{"dates as bars", `plt.bar([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2])`, `{"type": "bar", "elements": [
	{"label": "2024-01-01", "group": "Group 0", "value": 1}, {"label": "2024-01-02", "group": "Group 0", "value": 2}]}`},
	{"lines across", `plt.plot([1, 2, 3], [3, 2, 1]); plt.axhline(2); plt.axvline(1); plt.plot([1, 3], [2, 2]); plt.plot([1, 2, 3], [1, 1, 1], label='level')`, `{"type": "line", "elements": [
	{"label": "Line 0", "points": [[1, 3], [2, 2], [3, 1]]}, {"label": "level", "points": [[1, 1], [2, 1], [3, 1]]}]}`},
	{"nothing but a level line", `plt.plot([1, 3], [2, 2]); plt.axhline(2)`, `{"type": "line", "elements": [{"label": "Line 0", "points": [[1, 2], [3, 2]]}]}`},
	{"nothing but lines across", `plt.axhline(2); plt.axvline(1)`, `{"type": "line", "elements": []}`},
	{"categories", "plt.plot(['a', 'b'], [1, 2])", `{"type": "line", "x_scale": "categorical", "x_tick_labels": ["a", "b"],
	"elements": [{"label": "Line 0", "points": [["a", 1], ["b", 2]]}]}`},
	{"scatter", "plt.scatter([1, 2], [3, 4], label='dots'); plt.scatter([5], [6]); plt.axhline(2); plt.annotate('here', (1, 3))", `{
	"type": "scatter", "elements": [{"label": "dots", "points": [[1, 3], [2, 4]]}, {"label": "_child1", "points": [[5, 6]]}]}`},
	{"bar", "plt.bar(['x', 'y'], [1, -2], label='sold'); plt.axhline(0, color='k')", `{"type": "bar",
	"elements": [{"label": "x", "group": "sold", "value": 1}, {"label": "y", "group": "sold", "value": -2}]}`},
	{"bars lying", "plt.barh(['x', 'y'], [1, 2], label='sold'); plt.xlabel('Price [EUR]'); plt.ylabel('What')", `{"type": "bar",
	"x_label": "What", "x_unit": null, "y_label": "Price [EUR]", "y_unit": "EUR",
	"elements": [{"label": "x", "group": "sold", "value": 1}, {"label": "y", "group": "sold", "value": 2}]}`},
	{"bars in groups", `fig, ax = plt.subplots()
ax.bar([-0.2, 0.8], [1, 2], 0.4, label='old', yerr=[0.1, 0.1]); ax.bar([0.2, 1.2], [3, 4], 0.4, label='new'); ax.set_xticks([0, 1]); ax.set_xticklabels(['p', 'q'])`, `{
	"type": "bar", "elements": [{"label": "p", "group": "old", "value": 1}, {"label": "q", "group": "old", "value": 2},
	{"label": "p", "group": "new", "value": 3}, {"label": "q", "group": "new", "value": 4}]}`},
	{"bars at numbers", "plt.bar([1, 2.5], [1, 2])", `{"type": "bar", "elements": [
	{"label": "1", "group": "Group 0", "value": 1}, {"label": "2.5", "group": "Group 0", "value": 2}]}`},
	{"pie", "plt.pie([1, 3], labels=['a', 'b'], autopct='%d', radius=2); plt.title('Shares')", `{"type": "pie", "title": "Shares",
	"elements": [{"label": "a", "angle": 90, "radius": 2}, {"label": "b", "angle": 270, "radius": 2}]}`},
	{"pie in parts that no float is", "plt.pie([9, 1, 0.05], shadow=True)", `{"type": "pie", "elements": [{"angle": 322.388}, {"angle": 35.8209}, {"angle": 1.7910447}]}`},
	{"pie of nine tenths", "plt.pie([9, 1])", `{"type": "pie", "elements": [{"label": "", "angle": 324}, {"angle": 36}]}`},
	{"boxes lying", "plt.boxplot([[1, 2, 3], [0.1 + 0.2, 1, 1234567.25]], vert=False, labels=['u', 'v']); plt.xlabel('Value'); plt.ylabel('Name')", `{"type": "box_and_whisker",
	"x_label": "Name", "y_label": "Value", "elements": [{"label": "u", "min": 1, "median": 2}, {"label": "v", "min": 0.3, "max": 1234567.25}]}`},
	{"boxes", "plt.boxplot([[1, 2, 3, 4, 100]], labels=['one'])", `{"type": "box_and_whisker", "elements": [
	{"label": "one", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 4, "outliers": [100]}]}`},
	{"boxes as patches", "plt.boxplot([[1, 2, 3], [4, 5, 6]], patch_artist=True); plt.xticks([1, 2], ['u', 'v'])", `{"type": "box_and_whisker"}`},
	{"boxes that were cleared", "fig, ax = plt.subplots(); ax.boxplot([1, 2, 3]); ax.clear(); ax.plot([1])", `{"type": "line"}`},
	{"several axes", `fig, (a, b, c) = plt.subplots(1, 3); fig.suptitle('Both'); a.plot([1]); a.set_title('first'); b.scatter([1], [2])`, `{
	"type": "superchart", "title": "Both", "elements": [
	{"type": "line", "title": "first", "x_label": null, "y_label": null}, {"type": "scatter", "title": null}]}`},
	{"a colour bar", "plt.scatter([1, 2], [3, 4], c=[5, 6]); plt.colorbar()", `{"type": "scatter"}`},
	{"error bars", "plt.errorbar([1, 2], [3, 4], yerr=1, capsize=2, label='measured')", `{"type": "line",
	"elements": [{"label": "measured", "points": [[1, 3], [2, 4]]}]}`},
	{"error bars without a name", "plt.plot([1, 2]); plt.errorbar([1, 2], [3, 4], yerr=1)", `{"type": "line", "elements": [{"label": "Line 0"}, {"label": "Line 1"}]}`},
	{"three dimensions", "from mpl_toolkits.mplot3d import Axes3D\nplt.figure().add_subplot(projection='3d').plot([1], [2], [3])", `{"type": "unknown", "elements": []}`},
	{"anything else", "plt.imshow([[1, 2]]); plt.title('Picture')", `{"type": "unknown", "title": "Picture", "elements": []}`},
	{"nothing", "fig, ax = plt.subplots()", `{}`},
}

func TestPythonCharts(t *testing.T) {
	needModule(t, "matplotlib")
	k := startPython(t)
	if c := k.run("import matplotlib.pyplot as plt"); c.Err() != "" {
		t.Fatal(c.Err())
	}
	for _, c := range charts {
		t.Run(c.name, func(t *testing.T) {
			got := k.run(c.code + "\nNone")
			if got.Err() != "" || len(got.Results) != 1 || got.Results[0].Data["image/png"] == nil {
				t.Fatalf("%+v", got)
			}
			var want any
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			chart, there := got.Results[0].Data["e2b/chart"]
			if !there {
				t.Fatal("no chart")
			}
			if diff := within("", want, formOf(got.Results[0], "e2b/chart")); diff != "" {
				t.Errorf("%s in %s", diff, chart)
			}
		})
	}
}

func TestPythonChartOfPandas(t *testing.T) {
	needModule(t, "matplotlib", "pandas")
	k := startPython(t)
	got := k.run("import pandas as pd\npd.DataFrame({'a': [1, 2]}, index=pd.date_range('2024-01-01', periods=2)).plot(); None")
	if got.Err() != "" || len(got.Results) != 1 {
		t.Fatalf("%+v", got)
	}
	var want any
	_ = json.Unmarshal([]byte(`{"type": "line", "x_scale": "datetime", "elements": [
		{"label": "a", "points": [["2024-01-01T00:00:00", 1], ["2024-01-02T00:00:00", 2]]}]}`), &want)
	if diff := within("", want, formOf(got.Results[0], "e2b/chart")); diff != "" {
		t.Errorf("%s in %s", diff, got.Results[0].Data["e2b/chart"])
	}
}

// within says where got lacks or contradicts want; empty objects want nothing else.
func within(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok || len(want) == 0 && len(m) != 0 {
			return at + " is not as wanted"
		}
		for k, v := range want {
			g, there := m[k]
			if !there {
				return at + "." + k + " is missing"
			}
			if d := within(at+"."+k, v, g); d != "" {
				return d
			}
		}
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(want) {
			return at + " has another length"
		}
		for i := range want {
			if d := within(at+"[]", want[i], l[i]); d != "" {
				return d
			}
		}
	default:
		if !reflect.DeepEqual(want, got) {
			return at + " differs"
		}
	}
	return ""
}

// TestPythonChartsNeverSpoilThePicture draws what cannot be described.
func TestPythonChartsNeverSpoilThePicture(t *testing.T) {
	needModule(t, "matplotlib")
	k := startPython(t)
	for name, code := range map[string]string{
		"too many points": "plt.plot(range(300_000));",
		"a broken axis":   "fig, ax = plt.subplots(); ax.plot([1]); ax.get_xaxis().get_ticklabels = lambda *a, **o: 1 / 0",
	} {
		got := k.run("import matplotlib.pyplot as plt\n" + code)
		if got.Err() != "" || len(got.Results) != 1 || got.Results[0].Data["image/png"] == nil || got.Results[0].Data["e2b/chart"] != nil {
			t.Errorf("%s: %s %d results, stderr %s", name, got.Err(), len(got.Results), got.Stderr)
		}
	}
	// Nothing is loaded for those who draw nothing.
	if got := k.execute(kernel.Request{Code: "import sys; [m for m in sys.modules['_cubby_kernel'].parts if 'chart' in m]"}); !strings.Contains(got.Text(), "python_chart") {
		t.Errorf("after drawing: %s", got.Text())
	}
	if got := startPython(t).run("import sys; [m for m in sys.modules['_cubby_kernel'].parts if 'chart' in m]"); got.Text() != "[]" {
		t.Errorf("without drawing: %s", got.Text())
	}
}
