package kernel_test

import (
	"fmt"
	"strings"
	"testing"
)

// rawForms are the last expressions of cells and the JSON beside their text, byte
// for byte; none where it is empty. They run one after the other in one kernel.
type rawForms []struct{ code, want string }

func (forms rawForms) check(t *testing.T, k *wireKernel, mime string) {
	t.Helper()
	for _, c := range forms {
		got := k.run(c.code)
		if got.Err() != "" || len(got.Results) != 1 {
			t.Errorf("%q: %s, %d results, stderr %s", c.code, got.Err(), len(got.Results), got.Stderr)
		} else if raw := string(got.Results[0].Data[mime]); raw != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.code, raw, c.want)
		}
	}
}

func TestPythonJSON(t *testing.T) {
	k := startPython(t)
	k.run("import collections, dataclasses, datetime, decimal, enum, fractions, pathlib, uuid")
	rawForms{
		// Numbers keep their digits.
		{"{'a': 1.0, 'b': 2**60+1, 'c': -0.0, 'd': 1e400, 'e': 1e16, 'f': 0.1}", `{"a":1.0,"b":1152921504606846977,"c":-0.0,"d":null,"e":1e+16,"f":0.1}`},
		{"[2**64, -2**63, 10**30, True]", `[18446744073709551616,-9223372036854775808,1000000000000000000000000000000,true]`},
		{"[float('nan'), float('-inf'), {'x': float('nan')}]", `[null,null,{"x":null}]`},
		// Keys become text.
		{"{1: 1, 2.5: 2, None: 3, True: 4}", `{"1":4,"2.5":2,"null":3}`},
		{"{datetime.date(2024, 1, 2): 1, (uuid.UUID(int=1)): 2}", `{"2024-01-02":1,"00000000-0000-0000-0000-000000000001":2}`},
		{"{(1, 2): 3}", ""},
		// What is no list and no dict, but holds as much.
		{"{'s': {3, 1, 2}, 't': (1, 'x'), 'r': range(3), 'q': collections.deque([1]), 'k': {'a': 1}.keys()}", `{"s":[1,2,3],"t":[1,"x"],"r":[0,1,2],"q":[1],"k":["a"]}`},
		{"[datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.date(2024, 1, 2), datetime.time(3, 4), datetime.timedelta(seconds=90)]",
			`["2024-01-02T03:04:05.000006","2024-01-02","03:04:00","0:01:30"]`},
		{"[decimal.Decimal('1.10'), fractions.Fraction(1, 3), pathlib.Path('/a/b')]", `["1.10","1/3","/a/b"]`},
		{"P = dataclasses.make_dataclass('P', ['x', 'when'])\n[P(1.5, datetime.date(2024, 1, 2))]", `[{"x":1.5,"when":"2024-01-02"}]`},
		{"[enum.Enum('E', 'RED')(1), enum.IntEnum('I', 'ONE')(1)]", `[1,1]`},
		{"[collections.OrderedDict(a=1), collections.Counter('aab'), collections.namedtuple('N', 'x y')(1, 2)]", `[{"a":1},{"a":2,"b":1},[1,2]]`},
		// What has no such form leaves it away.
		{"[b'bytes']", ""}, {"[object]", ""}, {"{'f': len}", ""}, {"[1j]", ""}, {"{1, 2}", ""}, {"1.0", ""}, {"'text'", ""},
		{"a = []; a.append(a); a", ""}, {"d = {'x': float('nan')}; d['d'] = d; d", ""},
		{"class Bad:\n    __dataclass_fields__ = {'x': 1}\n    def __getattr__(self, n): raise ValueError(n)\n[Bad()]", ""},
		{"['é\\u2028\\ud83d\\ude00\\x7f<']", `["\u00e9\u2028\ud83d\ude00\u007f<"]`},
		{"['x' * 2_000_000]", ""},
	}.check(t, k, "application/json")
}

func TestPythonJSONOfArrays(t *testing.T) {
	needModule(t, "numpy", "pandas")
	k := startPython(t)
	if c := k.run("import datetime, decimal, numpy as np, pandas as pd"); c.Err() != "" {
		t.Fatal(c.Err())
	}
	rawForms{
		{"{'n': np.arange(3)}", `{"n":[0,1,2]}`},
		{"[np.int64(2**60+1), np.uint64(2**64-1), np.float64(1), np.float32(0.1), np.bool_(True), np.str_('x')]", `[1152921504606846977,18446744073709551615,1.0,0.1,true,"x"]`},
		{"[np.array([[1, 2], [3, 4]]), np.array([1.5, np.nan]), np.array(7), np.array([0.1], 'f4'), np.array(['a', None], object)]", `[[[1,2],[3,4]],[1.5,null],7,[0.1],["a",null]]`},
		{"[np.datetime64('2024-01-02'), np.array(['2024-01-02T03:04', 'NaT'], 'M8[ns]'), np.datetime64('20000-01-01')]",
			`["2024-01-02T00:00:00",["2024-01-02T03:04:00",null],"20000-01-01T00:00:00.000000"]`},
		{"{np.int64(1): 1, np.float64(.5): 2}", `{"1":1,"0.5":2}`},
		{"[np.array([1j])]", ""}, {"[np.array([b'x'])]", ""}, {"[np.zeros(10**6)]", ""}, {"np.arange(3)", ""},
		{"{'df': pd.DataFrame({'a': [1, 2], 'b': [1.0, None]}), 's': pd.Series([2**60+1]), 'i': pd.Index(['x'])}", `{"df":{"a":[1,2],"b":[1.0,null]},"s":[1152921504606846977],"i":["x"]}`},
		{"[pd.Timestamp('2024-01-02', tz='UTC'), pd.NaT, pd.NA, pd.Timedelta('1h'), pd.Period('2024-01', 'M')]", `["2024-01-02T00:00:00+00:00",null,null,"0 days 01:00:00","2024-01"]`},
		{"[pd.DataFrame({'a': range(300_000)})]", ""},
	}.check(t, k, "application/json")
	rawForms{
		{"pd.DataFrame({'id': [2**60+1, 2**63-1], 'x': [1.0, np.nan], 'u': np.array([2**64-1, 0], 'u8')})", `{"id":[1152921504606846977,9223372036854775807],"x":[1.0,null],"u":[18446744073709551615,0]}`},
		{"pd.DataFrame({'i': pd.array([2**60+1, None], 'Int64'), 'b': pd.array([True, None], 'boolean')})", `{"i":[1152921504606846977,null],"b":[true,null]}`},
		{"pd.DataFrame({'t': pd.to_datetime(['2024-01-02', None]), 'd': [decimal.Decimal('0.10'), b'x'], 'o': [{'a': np.arange(2)}, len], 'c': pd.Categorical(['p', 'q'])})",
			`{"t":["2024-01-02T00:00:00",null],"d":["0.10","b'x'"],"o":[{"a":[0,1]},"<built-in function len>"],"c":["p","q"]}`},
		{"pd.DataFrame({('a', 1): [1], 3: [2]})", `{"('a', 1)":[1],"3":[2]}`},
		{"pd.DataFrame()", `{}`},
	}.check(t, k, "e2b/data")
}

func TestNodeJSON(t *testing.T) {
	rawForms{
		{"({a: 9007199254740993n, b: 1.5, c: -0, d: 1e21})", `{"a":9007199254740993,"b":1.5,"c":0,"d":1e+21}`},
		{"[NaN, Infinity, undefined, , null]", `[null,null,null,null,null]`},
		{"({a: undefined, b: NaN})", `{"b":null}`},
		{"({d: new Date(0), bad: new Date(NaN)})", `{"d":"1970-01-01T00:00:00.000Z","bad":null}`},
		{"({m: new Map([['x', 1n]]), p: new Map([[1, 'y']]), s: new Set([1, 2])})", `{"m":{"x":1},"p":[[1,"y"]],"s":[1,2]}`},
		{"new Map([['x', {y: 1}]])", `{"x":{"y":1}}`},
		{"({t: new Float32Array([0.5, 1]), b: new BigInt64Array([5n])})", `{"t":[0.5,1],"b":[5]}`},
		{"BigInt.prototype.toString = () => 'no'; JSON.stringify({}); [12n]", `[12]`},
		{"[() => 1]", ""}, {"({get a() { return 1 }})", ""}, {"new (class A { x = 1 })", ""}, {"[Symbol('s')]", ""}, {"[new Error('e')]", ""},
		{"const o = {}; o.o = o; o", ""}, {"new Date(0)", ""}, {"1.5", ""}, {"Buffer.from('x')", ""}, {"'x'.repeat(10)", ""},
		{"[new Proxy({}, {})]", ""}, {"['x'.repeat(2000000)]", ""}, {"new Array(5000000)", ""},
		{"['é\u2028😀<']", "[\"é\u2028😀<\"]"},
	}.check(t, startNode(t), "application/json")
}

// TestJSONNestedDeep has values that clients could not read.
func TestJSONNestedDeep(t *testing.T) {
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	got := startNode(t).run("eval('" + deep + "')")
	if got.Err() != "" || got.Results[0].Data["application/json"] != nil {
		t.Errorf("%.200v", got)
	}
}

// TestTooLarge: a form that is too large is named, and one that a value does not have
// is not.
func TestTooLarge(t *testing.T) {
	python, node := startPython(t), startNode(t)
	for _, c := range []struct {
		k                   *wireKernel
		code, want, imports string
	}{
		{python, "list(range(300_000))", "[application/json]", ""},
		{python, "['x' * 2_000_000]", "[application/json]", ""},
		{python, "list(range(3))", "[]", ""},
		{python, "[object]", "[]", ""},
		{python, "class H:\n    def _repr_html_(self): return 'x' * (33 << 20)\n    __repr__ = lambda s: 'h'\nH()", "[text/html]", ""},
		{python, "%%capture kept\nlist(range(300_000))", "", ""},
		{python, "kept.show()", "[application/json]", ""},
		{python, "[np.zeros(10**6)]", "[application/json]", "numpy as np"},
		{python, "pd.DataFrame({'a': range(300_000)})", "[e2b/data]", "pandas as pd"},
		{python, "pd.Series(range(300_000))", "[e2b/data]", "pandas as pd"},
		{python, "plt.plot(range(300_000));", "[e2b/chart]", "matplotlib.pyplot as plt"},
		{node, "new Array(5000000)", "[application/json]", ""},
		{node, "['x'.repeat(2000000)]", "[application/json]", ""},
		{node, "({_toHtml: 'x'.repeat(40 << 20)})", "[text/html application/json]", ""},
		{node, "[1]", "[]", ""},
		{node, "[() => 1]", "[]", ""},
	} {
		t.Run(c.code, func(t *testing.T) {
			if c.imports != "" {
				needModule(t, strings.Fields(c.imports)[0])
				c.k.run("import " + c.imports)
			}
			got := c.k.run(c.code)
			left := ""
			for _, r := range got.Results {
				left += fmt.Sprint(r.LeftOut)
			}
			if got.Err() != "" || left != c.want {
				t.Errorf("left out %s, want %s; %s %s", left, c.want, got.Err(), got.Stderr)
			}
		})
	}
}
