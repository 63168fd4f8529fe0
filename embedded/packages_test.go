//go:build linux

package embedded_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// wheel makes a package of one module.
func wheel(t *testing.T, name, module string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	for path, text := range map[string]string{
		name + ".py":      module,
		info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "",
	} {
		w, err := z.Create(path)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// builder is a package's own build backend, which starts a process that goes on.
const builder = `
import os, subprocess, zipfile
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(directory, config_settings=None, metadata_directory=None):
    subprocess.Popen(["sleep", "4321"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
    name = "built-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as z:
        info = "built-1.0.dist-info/"
        z.writestr("built.py", "said = 'built inside'\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "")
    return name
`

// source makes a package that has to be built.
func source(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for path, text := range map[string]string{
		"built-1.0/PKG-INFO":       "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n",
		"built-1.0/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
		"built-1.0/backend.py":     builder,
	} {
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1e9, 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pyIndex is an index as PEP 503 has it, on this machine's loopback.
type pyIndex struct {
	files map[string][]byte
	port  int

	mu   sync.Mutex
	auth []string // credentials of requests
}

func (x *pyIndex) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.auth = append(x.auth, r.Header.Values("Authorization")...)
	x.mu.Unlock()
	if name, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok && x.files[name] != nil {
		w.Write(x.files[name])
		return
	}
	project := strings.Trim(strings.TrimPrefix(r.URL.Path, "/simple/"), "/")
	found := false
	w.Header().Set("Content-Type", "text/html")
	for name := range x.files {
		if strings.HasPrefix(name, project+"-") {
			found = true
			fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a>\n", name, name)
		}
	}
	if !found {
		w.WriteHeader(http.StatusNotFound)
	}
}

// openWithIndex starts a Cubby whose owner has an index of his own, with a password.
func openWithIndex(t *testing.T, files map[string][]byte) (*embedded.Cubby, *pyIndex) {
	t.Helper()
	return openPythonWithIndex(t, "/usr/bin/python3", files)
}

// openPythonWithIndex is openWithIndex with another interpreter.
func openPythonWithIndex(t *testing.T, python string, files map[string][]byte) (*embedded.Cubby, *pyIndex) {
	t.Helper()
	x := &pyIndex{files: files}
	srv := httptest.NewServer(x)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if x.port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PIP_INDEX_URL", fmt.Sprintf("http://ann:hunter2@host.cubby.internal:%d/simple/", x.port))
	t.Setenv("PIP_TRUSTED_HOST", "host.cubby.internal")
	return openWith(t, embedded.Config{Python: python, HostPorts: []int{x.port}, IndexEnv: true}), x
}

func openWith(t *testing.T, cfg embedded.Config) *embedded.Cubby {
	t.Helper()
	testenv.CheckLeaks(t)
	cfg.Binary, cfg.Python = testenv.Cubby(t), cmp.Or(cfg.Python, "/usr/bin/python3")
	c, err := embedded.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// createWith makes a sandbox, which lives until the test's end.
func createWith(t *testing.T, c *embedded.Cubby, opts ...cubby.CreateOption) *cubby.Sandbox {
	t.Helper()
	sbx, err := c.Create(bounded(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sbx.Close() })
	return sbx
}

// TestPackages: what is asked for is there before the first code, of a registry that the
// code itself does not reach.
func TestPackages(t *testing.T) {
	c, x := openWithIndex(t, map[string][]byte{
		"one-1.0-py3-none-any.whl": wheel(t, "one", "said = 'one'\n"),
		"two-1.0-py3-none-any.whl": wheel(t, "two", "said = 'two'\n"),
		"built-1.0.tar.gz":         source(t),
	})
	t.Run("installed, and closed then", func(t *testing.T) {
		sbx := createWith(t, c, cubby.WithWarm("python"), cubby.WithPackages(cubby.Packages{Pip: []string{"one", `two[x] >=1 ; python_version > "3"`}}))
		if ex := run(t, sbx, "import one, two; print(one.said, two.said, one.__file__)"); !strings.HasPrefix(ex.Stdout, "one two /home/user/.local/") {
			t.Errorf("%+v", ex)
		}
		ex := run(t, sbx, fmt.Sprintf("import urllib.request as u; u.urlopen('http://host.cubby.internal:%d/simple/one/')", x.port))
		if ex.Error == nil || len(ex.Refused) != 1 || ex.Refused[0].Host != "host.cubby.internal" || ex.Refused[0].Allow == "" {
			t.Errorf("%+v", ex)
		}
		// A command that fails is no error of its cell, and what was refused is told.
		// So it is the next time.
		for _, host := range []string{"other.example.com", "other.example.com", "host.cubby.internal"} {
			ex = run(t, sbx, "!curl -sS http://"+host+"/")
			if ex.Error != nil || ex.ExitCode != 0 || len(ex.Refused) != 1 || ex.Refused[0].Host != host {
				t.Errorf("%+v", ex)
			}
		}
		// The password stays outside.
		if ex := run(t, sbx, "import os; print(os.environ['PIP_INDEX_URL'])"); strings.Contains(ex.Stdout, "hunter2") || strings.Contains(ex.Stdout, "ann") {
			t.Errorf("%+v", ex)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.auth) > 0 {
			t.Errorf("%q", x.auth)
		}
	})
	t.Run("the network that was asked for", func(t *testing.T) {
		sbx := createWith(t, c, cubby.WithNetwork(cubby.Network{Allow: []string{"@pypi"}}), cubby.WithPackages(cubby.Packages{Pip: []string{"one"}}))
		ex := run(t, sbx, "!pip install -q two\nimport one, two; print(two.said)\n%pip --version")
		if ex.Error != nil || !strings.Contains(ex.Stdout, "two\npip ") {
			t.Errorf("%+v", ex)
		}
		// The same for commands, and for the interpreter itself.
		for _, line := range []string{"pip download --no-cache-dir -q one && ls one-1.0*", "python3 -m pip install --force-reinstall -q one && python3 -c 'import one'"} {
			if res, err := sbx.Commands().Run(t.Context(), line); err != nil || res.ExitCode != 0 {
				t.Errorf("%s: %+v, %v", line, res, err)
			}
		}
	})
	t.Run("code of packages", func(t *testing.T) {
		_, err := c.Create(bounded(t), cubby.WithPackages(cubby.Packages{Pip: []string{"built"}}))
		if cubby.CodeOf(err) != cubby.CodeNotFound || !strings.Contains(err.Error(), "--build") {
			t.Errorf("%v", err)
		}
		sbx := createWith(t, c, cubby.WithPackages(cubby.Packages{Pip: []string{"built"}, Build: true}))
		if ex := run(t, sbx, "import built; print(built.said)"); ex.Stdout != "built inside\n" {
			t.Errorf("%+v", ex)
		}
		if n := processes(t, sbx, "sleep 4321"); n != 0 {
			t.Errorf("%d processes of the package go on", n)
		}
	})
	t.Run("no such package", func(t *testing.T) {
		_, err := c.Create(bounded(t), cubby.WithMetadata(map[string]string{"of": "three"}), cubby.WithPackages(cubby.Packages{Pip: []string{"three"}}))
		if cubby.CodeOf(err) != cubby.CodeNotFound || !strings.Contains(err.Error(), "three") {
			t.Errorf("%v", err)
		}
		for info, err := range c.List(t.Context(), cubby.ListOptions{}) {
			if err != nil || info.Metadata["of"] == "three" {
				t.Errorf("there is a sandbox still: %+v, %v", info, err)
			}
		}
	})
}

// TestNoPip: where pip is missing, or can put packages nowhere, the error says what to do on
// the computer that has the sandbox.
func TestNoPip(t *testing.T) {
	out, err := exec.Command("/usr/bin/python3", "-c", "import pip; print(pip.__path__[0])").Output()
	if err != nil {
		t.Skip("this machine's Python has no pip")
	}
	pip := strings.TrimSpace(string(out))
	for name, test := range map[string]struct {
		pip  bool
		says []string
	}{
		"no pip":                {false, []string{"there is no pip in the sandbox", "install python3-pip"}},
		"a virtual environment": {true, []string{"is a virtual environment", "CUBBY_PYTHON"}},
	} {
		t.Run(name, func(t *testing.T) {
			venv := filepath.Join(t.TempDir(), "venv")
			if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if test.pip {
				at, err := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages"))
				if err != nil || len(at) != 1 {
					t.Fatalf("%q, %v", at, err)
				}
				if err := os.CopyFS(filepath.Join(at[0], "pip"), os.DirFS(pip)); err != nil {
					t.Fatal(err)
				}
			}
			files := map[string][]byte{"one-1.0-py3-none-any.whl": wheel(t, "one", "")}
			c, _ := openPythonWithIndex(t, filepath.Join(venv, "bin", "python"), files)
			_, err := c.Create(bounded(t), cubby.WithPackages(cubby.Packages{Pip: []string{"one"}}))
			if cubby.CodeOf(err) != cubby.CodeUnimplemented {
				t.Fatalf("%v", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) && !strings.Contains(hintOf(err), want) {
					t.Errorf("%v, hint %q, want %q", err, hintOf(err), want)
				}
			}
		})
	}
}

func hintOf(err error) string {
	var e *cubby.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Hint
}

// TestUnreachableIndex: an index whose port the owner has not opened is named as such.
func TestUnreachableIndex(t *testing.T) {
	t.Setenv("PIP_INDEX_URL", "http://host.cubby.internal:9/simple/")
	t.Setenv("PIP_TRUSTED_HOST", "host.cubby.internal")
	c := openWith(t, embedded.Config{IndexEnv: true})
	_, err := c.Create(bounded(t), cubby.WithPackages(cubby.Packages{Pip: []string{"one"}}))
	if cubby.CodeOf(err) != cubby.CodeUnavailable || !strings.Contains(err.Error(), "only the owner can") {
		t.Errorf("%v", err)
	}
}

// reach is an address of a real registry as its owner has to name it, or the test is
// skipped.
func reach(t *testing.T, host string) (owner []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		t.Skipf("%s cannot be resolved here", host)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, "443"))
	if err != nil {
		t.Skipf("%s cannot be reached here", host)
	}
	conn.Close()
	return addrs
}

// TestRegistries installs from the real ones, where they can be reached.
func TestRegistries(t *testing.T) {
	for _, test := range []struct {
		name, host string
		packages   cubby.Packages
		network    cubby.Network
		language   string
		code, want string
	}{
		{"npm", "registry.npmjs.org", cubby.Packages{Npm: []string{"left-pad@1.3.0"}}, cubby.Network{},
			"javascript", `console.log(require("left-pad")("x", 3))`, "  x\n"},
		{"npm in a command", "registry.npmjs.org", cubby.Packages{}, cubby.Network{Open: true},
			"bash", "npm install -g cowsay >/dev/null && cowsay moo | grep -o moo && command -v cowsay", "moo\n/home/user/.local/bin/cowsay\n"},
		{"PyPI", "pypi.org", cubby.Packages{Pip: []string{"six==1.16.0"}}, cubby.Network{},
			"python", `import six; print(six.__version__, six.__file__)`, "1.16.0 /home/user/.local/"},
		{"Debian", "deb.debian.org", cubby.Packages{}, cubby.Network{Allow: []string{"@debian"}}, "bash", `
mkdir -p apt/lists/partial apt/cache/archives/partial && cd apt && touch status
echo "deb [trusted=yes] http://deb.debian.org/debian bookworm main" >sources
o="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache -o Dir::Etc::sourcelist=$PWD/sources -o Dir::Etc::sourceparts=- -o Dir::State::status=$PWD/status -o APT::Sandbox::User=root"
apt-get $o update -qq >log 2>&1 || cat log
apt-get $o download -qq hello >>log 2>&1 || cat log
ls *.deb | grep -o '^hello_'`, "hello_\n"},
		{"Go", "proxy.golang.org", cubby.Packages{}, cubby.Network{Allow: []string{"@go"}}, "bash", `
go=$(command -v go || ls /usr/lib/go*/bin/go /usr/local/go/bin/go 2>/dev/null | head -1)
[ -n "$go" ] || { echo skip; exit; }
mkdir m && cd m && $go mod init m >/dev/null 2>&1 && $go get rsc.io/quote@v1.5.2 >/dev/null && grep -o 'rsc.io/quote v1.5.2' go.mod`, "rsc.io/quote v1.5.2\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := openWith(t, embedded.Config{Reach: reach(t, test.host)})
			sbx := createWith(t, c, cubby.WithPackages(test.packages), cubby.WithNetwork(test.network))
			ex := run(t, sbx, test.code, cubby.WithLanguage(test.language))
			if ex.Stdout == "skip\n" {
				t.Skip("its program is not in sandboxes of this machine")
			}
			if !strings.HasPrefix(ex.Stdout, test.want) {
				t.Errorf("%+v", ex)
			}
		})
	}
}
