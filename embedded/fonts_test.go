package embedded_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// notRoot skips what needs a cache of the test's own: root's is the machine's,
// whatever the environment says. The suite runs as a plain user, too.
func notRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("root's cache is /var/cache/cubby")
	}
}

// TestFontList: matplotlib's list of fonts is made once for all sandboxes to come, in
// a sandbox that no user's code runs in, and nothing of it lands in the user's home.
func TestFontList(t *testing.T) {
	notRoot(t)
	if exec.Command("/usr/bin/python3", "-c", "import matplotlib").Run() != nil {
		t.Skip("matplotlib is not installed")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	first := open(t)
	spoiler, err := first.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What a sandbox does to its own list is its own affair.
	run(t, spoiler, `
import glob, os, matplotlib.font_manager
for name in glob.glob(os.environ["MPLCONFIGDIR"] + "/fontlist-*"):
    open(name, "w").write('{"_version": "spoilt"}')`)

	var kept string
	for deadline := time.Now().Add(2 * time.Minute); kept == ""; {
		if names, _ := filepath.Glob(filepath.Join(cache, "cubby", "fonts-*.json")); len(names) == 1 {
			kept = names[0]
		} else if time.Now().After(deadline) {
			t.Fatal("no list of fonts was made")
		} else {
			time.Sleep(50 * time.Millisecond) // another process makes it, and tells nobody
		}
	}
	if text, err := os.ReadFile(kept); err != nil || strings.Contains(string(text), "spoilt") || !strings.Contains(string(text), "DejaVu Sans") {
		t.Errorf("kept is %.200s, %v", text, err)
	}

	const look = `
import glob, os
[name] = glob.glob(os.environ["MPLCONFIGDIR"] + "/fontlist-*")
before = os.stat(name).st_mtime_ns, open(name).read()
import matplotlib.pyplot as plt
plt.plot([1]); plt.savefig("a.png"); plt.close()
print(before == (os.stat(name).st_mtime_ns, open(name).read()), "spoilt" in before[1], sorted(n for n in os.listdir() if n != ".local"))`
	for name, c := range map[string]func() string{
		"of the same Cubby": func() string {
			sbx, err := first.Create(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return run(t, sbx, look).Stdout
		},
		"of the next Cubby": func() string { return run(t, create(t), look).Stdout },
	} {
		if got := c(); got != "True False ['a.png']\n" {
			t.Errorf("a sandbox %s: used as it was, spoilt, and the home: %s", name, got)
		}
	}
}

// TestNoFontList: where another Python's matplotlib made it worth a try, the try is
// made once and remembered; each process would start a sandbox for nothing otherwise.
func TestNoFontList(t *testing.T) {
	notRoot(t)
	python := filepath.Join(t.TempDir(), "venv", "bin", "python3")
	if exec.Command("/usr/bin/python3", "-c", "import matplotlib").Run() != nil ||
		exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", filepath.Dir(filepath.Dir(python))).Run() != nil {
		t.Skip("matplotlib or venv is not installed")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	c, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t), Python: python})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // another process makes it, and tells nobody
		if names, _ := filepath.Glob(filepath.Join(cache, "cubby", "fonts-*.json")); len(names) == 1 {
			if text, err := os.ReadFile(names[0]); err != nil || !strings.Contains(string(text), `"none":true`) {
				t.Errorf("kept is %.200s, %v", text, err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("that there is no matplotlib was not kept")
		}
	}
}
