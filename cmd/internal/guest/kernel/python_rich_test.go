package kernel_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// TestPythonDisplay needs the standard library only.
func TestPythonDisplay(t *testing.T) {
	k := startPython(t)
	for _, c := range []pyCell{
		{code: "class H:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'h'\nH()", text: "h", data: "text/html=<b>"},
		{code: "display(H(), 1)", shows: []string{"text/html", "text/plain"}},
		{code: "display({'text/markdown': '# a'}, raw=True)", shows: []string{"text/markdown"}},
		{code: "class M:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/x': {'a': 1}}\n    __repr__ = lambda s: 'm'\nM()", text: "m", data: "application/x"},
		{code: "class P:\n    def _repr_png_(self): return b'\\x89PNG'\n    __repr__ = lambda s: 'p'\nP()", text: "p", data: "image/png=iVBORw=="},
		{code: "class B:\n    def _repr_html_(self): 1/0\n    __repr__ = lambda s: 'b'\nB()", text: "b", stderr: "B._repr_html_ failed: ZeroDivisionError"},
		{code: "class G:\n    def __getattr__(self, n): return lambda *a: 'x'\n    __repr__ = lambda s: 'g'\nG()", text: "g"},
		{code: "H", text: "<class '__main__.H'>"},
		{code: "from IPython.display import display, HTML, Image, Markdown, SVG, JSON\ndisplay(HTML('<i>'), Markdown('m'))", shows: []string{"text/html", "text/markdown"}},
		{code: "JSON({'a': 1})", text: "<IPython.core.display.JSON object>", data: "application/json"},
		{code: "%%html\n<b>", shows: []string{"text/html"}},
	} {
		c.check(t, k)
	}
}

// pythonPackages are cells for the packages that people use most.
var pythonPackages = map[string][]pyCell{
	"matplotlib": {
		{code: "import matplotlib.pyplot as plt\nplt.plot([1, 2]);", shows: []string{"image/png"}},
		{code: "plt.plot([1]); plt.show()\nplt.plot([2]); plt.show()", shows: []string{"image/png", "image/png"}},
		{code: "fig, ax = plt.subplots()\nfig2, ax2 = plt.subplots()\nax.plot([1]);", shows: []string{"image/png", "image/png"}},
		{code: "fig", text: "<Figure size 640x480 with 1 Axes>", data: "image/png"},
		{code: "fig, ax = plt.subplots()\nfig", text: "<Figure size 640x480 with 1 Axes>", data: "image/png"},
		{code: "plt.plot([1])\nplt.savefig('a.png')\nplt.show()", shows: []string{"image/png"}},
		{code: "plt.figure();"},
		{code: "plt.plot([1])\n1/0", shows: []string{"image/png"}, err: "ZeroDivisionError:", exit: 1},
		{code: "fig, ax = plt.subplots()\nfig.show()", shows: []string{"image/png"}},
		{code: "for i in range(3):\n    plt.plot([i]); plt.show()", shows: []string{"image/png", "image/png", "image/png"}},
		{code: "import matplotlib\nmatplotlib.use('TkAgg')\nplt.plot([1]);", stderr: "no display for matplotlib's TkAgg", shows: []string{"image/png"}},
		{code: "matplotlib.use('Agg')\nplt.get_fignums()", text: "[]"},
	},
	"pandas": {
		{code: "import pandas as pd\ndf = pd.DataFrame({'a': [1, None], 't': pd.to_datetime(['2020-01-01', None])})\ndf", text: "     a          t\n0  1.0 2020-01-01\n1  NaN        NaT", data: "text/html"},
		{code: "df", text: "     a          t\n0  1.0 2020-01-01\n1  NaN        NaT", data: "e2b/data"},
		{code: "df['a']", text: "0    1.0\n1    NaN\nName: a, dtype: float64", data: "e2b/data"},
		{code: "import numpy as np\nnp.arange(3)", text: "array([0, 1, 2])"},
	},
	"PIL": {
		{code: "from PIL import Image\nim = Image.new('RGB', (2, 2), 'red')\nprint(im.size)\nim.show()", stdout: "(2, 2)\n", shows: []string{"image/png"}},
		{code: "im.show(title='red'); im.show()", shows: []string{"image/png", "image/png"}},
		{code: "from PIL import ImageShow\nImageShow.show(im)", text: "True", shows: []string{"image/png"}},
		{code: "im.save('red.png')", shows: []string{"image/png"}},
		{code: "im.convert('CMYK').save('red.jpg', quality=50)", shows: []string{"image/png"}},
		{code: "import io, pathlib\nim.save(io.BytesIO(), 'PNG')\nim.save(pathlib.Path('red2.png'))"},
		{code: "im.save('no/such/folder.png')", err: "FileNotFoundError", exit: 1},
		{code: "display(im)", shows: []string{"image/png"}},
		{code: "type(im).__repr__ = lambda s: 'im'\nim", text: "im", data: "image/png"},
	},
}

func TestPythonPackages(t *testing.T) {
	for module, cells := range pythonPackages {
		t.Run(module, func(t *testing.T) {
			needModule(t, module)
			k := startPython(t)
			for _, c := range cells {
				c.check(t, k)
			}
		})
	}
}

func TestPythonFrameData(t *testing.T) {
	needModule(t, "pandas")
	k := startPython(t)
	got := k.run("import pandas as pd\npd.DataFrame({'a': [1, None], 't': pd.to_datetime(['2020-01-01', None]), 3: ['x', 'y']})")
	data, _ := formOf(got.Results[0], "e2b/data").(map[string]any)
	a, _ := data["a"].([]any)
	at, _ := data["t"].([]any)
	three, _ := data["3"].([]any)
	if len(a) != 2 || a[0] != 1.0 || a[1] != nil || len(at) != 2 || at[0] != "2020-01-01T00:00:00" || at[1] != nil || len(three) != 2 {
		t.Errorf("data %v", data)
	}
	if got := k.run("pd.DataFrame({'a': range(300_000)})"); got.Results[0].Data["e2b/data"] != nil {
		t.Error("a huge frame was copied into the result")
	}
}

func TestPythonIPython(t *testing.T) {
	needModule(t, "IPython")
	k := wireStart(t, kernel.Python(pythonPath(t), wireScripts(t), true))
	for _, c := range []pyCell{
		{code: "print('hello')", stdout: "hello\n"},
		{code: "6*7", text: "42"},
		{code: "def f(): 1/0\nf()", err: "ZeroDivisionError: division by zero", traceback: "last):\n  File \"<ipython-input-3-", exit: 1},
		{code: "1 = = 2", err: "SyntaxError:", exit: 1},
		{code: "import sys; sys.exit(3)", err: "SystemExit: 3", exit: 3},
		{code: "!echo a", stdout: "a\n"},
		{code: "from IPython.display import HTML, display\ndisplay(HTML('x'))\nHTML('y')", text: "<IPython.core.display.HTML object>", data: "text/html=y", shows: []string{"text/html"}},
		{code: "import asyncio\nawait asyncio.sleep(0, 3)", text: "3"},
		{code: "{'a': 1}", text: "{'a': 1}", data: "application/json"},
		{code: "input()", err: "StdinNotImplementedError:", exit: 1},
		{code: "get_ipython().__class__.__name__", text: "'CubbyShell'"},
	} {
		c.check(t, k)
	}
	needModule(t, "matplotlib")
	for _, c := range []pyCell{
		{code: "import matplotlib.pyplot as plt\nplt.plot([1]);", shows: []string{"image/png"}},
		{code: "fig, ax = plt.subplots()\nax.plot([1])\ndisplay(fig)", shows: []string{"image/png"}},
		{code: "fig", text: "<Figure size 640x480 with 1 Axes>", data: "e2b/chart"},
		{code: "fig", text: "<Figure size 640x480 with 1 Axes>", data: "image/png"},
	} {
		c.check(t, k)
	}
}

// TestPythonInterrupt sends SIGINT to cells of several kinds and expects the
// state to be there afterwards.
func TestPythonInterrupt(t *testing.T) {
	k := startPython(t)
	k.run("import time, asyncio\nkept = 1")
	for _, code := range []string{
		"print('begun'); time.sleep(30)",
		"print('begun')\nwhile True: pass",
		"print('begun'); await asyncio.sleep(30)",
		"async def main():\n    print('begun')\n    await asyncio.sleep(30)\nasyncio.run(main())",
		"!echo begun; sleep 30",
		"import subprocess; subprocess.run(['sh', '-c', 'echo begun; sleep 30'])",
		"class R:\n    def __repr__(self):\n        print('begun')\n        time.sleep(30)\nR()",
	} {
		k.start(kernel.Request{Code: code})
		k.waitForStdout("begun")
		k.interrupt()
		began := time.Now()
		got := k.finish()
		if len(got.Errors) == 0 || got.Errors[0].Name != "KeyboardInterrupt" || got.ExitCode != 130 {
			t.Errorf("%q: %+v", code, got)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%q: took %v to stop", code, d)
		}
		k.interrupt() // between two cells: ignored
		time.Sleep(20 * time.Millisecond)
	}
	pyCell{code: "kept", text: "1"}.check(t, k)

	k.start(kernel.Request{Code: "try:\n    print('begun')\n    time.sleep(30)\nexcept KeyboardInterrupt:\n    print('swallowed')"})
	k.waitForStdout("begun")
	k.interrupt()
	if got := k.finish(); got.Stdout != "begun\nswallowed\n" || got.ExitCode != 0 {
		t.Errorf("swallowed: %+v", got)
	}
	k.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL);")
	k.interrupt()
	pyCell{code: "kept", text: "1"}.check(t, k)
}

// TestPythonLatency expects text while the cell that wrote it still runs.
func TestPythonLatency(t *testing.T) {
	k := startPython(t)
	for _, code := range []string{
		"import time\nprint('now')\ntime.sleep(1)",
		"print('now', end='')\ntime.sleep(1)",
		"for i in range(5000): print('now')\nprint('now', end='')\ntime.sleep(1)",
		"x = sum(1 for _ in range(10))\nprint('now', end='')\nt = time.time()\nwhile time.time() < t + 1: pass",
	} {
		k.start(kernel.Request{Code: code})
		began := time.Now()
		for !strings.HasPrefix(k.peekStdout(), "now") && time.Since(began) < 3*time.Second {
			time.Sleep(5 * time.Millisecond)
		}
		if d := time.Since(began); d > 400*time.Millisecond {
			t.Errorf("%q: text came after %v", code, d)
		}
		k.finish()
	}
}

// waitForStdout waits until what was printed starts with text.
func (k *wireKernel) waitForStdout(text string) {
	k.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.HasPrefix(k.peekStdout(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			k.t.Fatalf("%q was not printed: %q", text, k.peekStdout())
		}
	}
}

func (k *wireKernel) peekStdout() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stdout.String()
}

// TestPythonGone covers code that ends its kernel.
func TestPythonGone(t *testing.T) {
	for code, status := range map[string]int{
		"print('last', end='')\nimport os; os._exit(3)":              3,
		"import os\nos.kill(os.getpid(), 9)":                         -1,
		"import os\nos.closerange(0, 2000)\nprint('no descriptors')": 1,
	} {
		k := startPython(t)
		got := k.run(code)
		if !got.Exited || (status != 1 && got.ExitCode != status) {
			t.Errorf("%q: %+v", code, got)
		}
	}
}

// TestPythonLeftovers ends a kernel whose code left a thread that never ends.
func TestPythonLeftovers(t *testing.T) {
	k := startPython(t)
	k.run("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()")
	if err := syscall.Kill(k.cmd.Process.Pid, 0); err != nil {
		t.Fatal(err)
	}
	// The harness expects the process to end with its socket.
}

// BenchmarkPythonStart is the time from exec to an answer, with the harness's own
// pause of 15 ms after it.
func BenchmarkPythonStart(b *testing.B) {
	for b.Loop() {
		k := startPython(b)
		if got := k.run("print(1)"); got.ExitCode != 0 {
			b.Fatal(got)
		}
	}
}

// TestPythonImageModes shows pictures of each mode and size, one of which is the value.
func TestPythonImageModes(t *testing.T) {
	needModule(t, "PIL")
	k := startPython(t)
	k.run("from PIL import Image\nimport os")
	for code, want := range map[string]string{
		"Image.new('1', (3, 2))":                                       "3 x 2, 1 bits grey",
		"Image.new('L', (3, 2))":                                       "3 x 2, 8 bits grey",
		"Image.new('P', (3, 2))":                                       "3 x 2, 1 bits palette",
		"Image.new('RGBA', (3, 2), (1, 2, 3, 4))":                      "3 x 2, 8 bits RGBA",
		"Image.new('I;16', (3, 2))":                                    "3 x 2, 16 bits grey",
		"Image.new('CMYK', (3, 2))":                                    "3 x 2, 8 bits RGB",
		"Image.new('YCbCr', (3, 2))":                                   "3 x 2, 8 bits RGB",
		"Image.new('F', (3, 2))":                                       "3 x 2, 8 bits RGB",
		"Image.new('RGB', (6000, 4000), 'red')":                        "4898 x 3265, 8 bits RGB",
		"Image.new('P', (100000, 400))":                                "63245 x 252, 8 bits RGB",
		"Image.frombytes('RGB', (3000, 2400), os.urandom(21_600_000))": "1500 x 1200, 8 bits RGB",
	} {
		got := k.run("im = " + code + "\nim.show()\nim")
		if got.Err() != "" || len(got.Results) != 2 || formOf(got.Results[0], "image/png") == nil {
			t.Errorf("%s: %s, %d results, stderr %s", code, got.Err(), len(got.Results), got.Stderr)
			continue
		}
		picture, _ := formOf(got.Results[1], "image/png").(string)
		head, err := base64.StdEncoding.DecodeString(picture[:48])
		if err != nil {
			t.Fatal(err)
		}
		// Width, height, bits of a channel, kind of colour: the start of a PNG.
		seen := fmt.Sprintf("%d x %d, %d bits %s", binary.BigEndian.Uint32(head[16:]), binary.BigEndian.Uint32(head[20:]), head[24],
			map[byte]string{0: "grey", 2: "RGB", 3: "palette", 6: "RGBA"}[head[25]])
		if seen != want {
			t.Errorf("%s: shown as %s, not %s", code, seen, want)
		}
		if told := strings.Contains(got.Stderr, "is shown as"); told == strings.HasPrefix(want, "3 x 2") || len(picture) > 32<<20 {
			t.Errorf("%s: %d bytes, stderr %s", code, len(picture), got.Stderr)
		}
	}
	// What cannot be seen is told, and its text is there.
	for _, code := range []string{"im = Image.new('L', (1, 1)); im.close(); im", "Image.new('LAB', (0, 0))"} {
		got := k.run(code)
		if got.Err() != "" || !strings.Contains(got.Text(), "PIL.Image") || formOf(got.Results[0], "image/png") == nil && !strings.Contains(got.Stderr, "left out") {
			t.Errorf("%s: %+v", code, got)
		}
	}
	if got := startPython(t).run("import sys; [m for m in sys.modules if m.startswith('PIL')]"); got.Text() != "[]" {
		t.Errorf("loaded without being asked for: %s", got.Text())
	}
}
