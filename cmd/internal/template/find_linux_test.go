package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// tree makes files below a new directory whose path it returns. A value is a
// file's content; "elf" a program, "-> x" a link, "dir" a directory. ROOT in a
// value stands for the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content = strings.ReplaceAll(content, "ROOT", root)
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, path)
		} else if content == "dir" {
			err = os.MkdirAll(path, 0o755)
		} else {
			if content == "elf" {
				content = "\x7fELF"
			}
			err = os.WriteFile(path, []byte(content), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	pyenvShim = "#!/usr/bin/env bash\nset -e\nexport PYENV_ROOT=\"ROOT/.pyenv\"\nexec \"ROOT/.pyenv/libexec/pyenv\" exec \"$program\" \"$@\"\n"
	nodeShim  = "#!/usr/bin/env bash\nexport NODENV_ROOT=\"ROOT/.nodenv\"\nexec \"nodenv\" exec \"$program\" \"$@\"\n"
)

// pythonAt lists the files of a Python installation.
func pythonAt(prefix, version string) map[string]string {
	return map[string]string{
		prefix + "/bin/python" + version:                "elf",
		prefix + "/bin/python3":                         "-> python" + version,
		prefix + "/lib/python" + version + "/os.py":     "",
		prefix + "/pip.conf":                            "password",
		prefix + "/etc/npmrc":                           "password",
		prefix + "/lib/libpython" + version + ".so.1.0": "elf",
	}
}

func merge(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

func TestFindPython(t *testing.T) {
	for _, tt := range []struct {
		name     string
		files    map[string]string
		env      map[string]string // ROOT is replaced, PATH gets nothing else
		cwd      string
		option   string
		path     string   // below ROOT
		prefixes []string // below ROOT
		links    []string // below ROOT
	}{
		{
			name:  "a plain installation, under the name it was found by",
			files: pythonAt("py", "3.12"), env: map[string]string{"PATH": "ROOT/py/bin"},
			path: "py/bin/python3", prefixes: []string{"py/bin", "py/lib"},
		},
		{
			name:  "a link elsewhere in PATH leads to the real program",
			files: merge(pythonAt("py", "3.12"), map[string]string{"tools/python3": "-> ../py/bin/python3"}),
			env:   map[string]string{"PATH": "ROOT/tools"},
			path:  "py/bin/python3.12", prefixes: []string{"py/bin", "py/lib"},
		},
		{
			name:  "pyenv's global version",
			files: merge(pythonAt(".pyenv/versions/3.11.7", "3.11"), pythonAt(".pyenv/versions/3.12.1", "3.12"), map[string]string{".pyenv/shims/python3": pyenvShim, ".pyenv/version": "3.11.7\n"}),
			env:   map[string]string{"PATH": "ROOT/.pyenv/shims"},
			path:  ".pyenv/versions/3.11.7/bin/python3", prefixes: []string{".pyenv/versions/3.11.7/bin", ".pyenv/versions/3.11.7/lib"},
		},
		{
			name:  "pyenv's version of the folder, given by its beginning",
			files: merge(pythonAt(".pyenv/versions/3.11.7", "3.11"), pythonAt(".pyenv/versions/3.11.10", "3.11"), map[string]string{".pyenv/shims/python3": pyenvShim, ".pyenv/version": "system", "work/.python-version": "3.11 # note\n", "work/deep": "dir"}),
			env:   map[string]string{"PATH": "ROOT/.pyenv/shims"}, cwd: "work/deep",
			path: ".pyenv/versions/3.11.10/bin/python3", prefixes: []string{".pyenv/versions/3.11.10/bin", ".pyenv/versions/3.11.10/lib"},
		},
		{
			name:  "PYENV_VERSION wins; system means the next in PATH",
			files: merge(pythonAt("sys", "3.12"), pythonAt(".pyenv/versions/3.11.7", "3.11"), map[string]string{".pyenv/shims/python3": pyenvShim, ".pyenv/version": "3.11.7"}),
			env:   map[string]string{"PATH": "ROOT/.pyenv/shims:ROOT/sys/bin", "PYENV_VERSION": "system"},
			path:  "sys/bin/python3", prefixes: []string{"sys/bin", "sys/lib"},
		},
		{
			name:  "a pyenv version that is not installed gives way to the next in PATH",
			files: merge(pythonAt("sys", "3.12"), map[string]string{".pyenv/shims/python3": pyenvShim, ".pyenv/version": "2.0.0"}),
			env:   map[string]string{"PATH": "ROOT/.pyenv/shims:ROOT/sys/bin"},
			path:  "sys/bin/python3", prefixes: []string{"sys/bin", "sys/lib"},
		},
		{
			name: "a virtual environment on an installation behind a link",
			files: merge(pythonAt("versions/3.11.7", "3.11"), map[string]string{
				"versions/3.11": "-> 3.11.7", "project/.venv/pyvenv.cfg": "home = ROOT/versions/3.11/bin\nversion = 3.11.7\n",
				"project/.venv/bin/python":                     "-> ROOT/versions/3.11/bin/python3.11",
				"project/.venv/bin/python3":                    "-> python",
				"project/.venv/lib/python3.11/site-packages/x": "", "project/.venv/lib64": "-> lib", "project/secret": "x",
			}),
			env:  map[string]string{"PATH": "ROOT/project/.venv/bin"},
			path: "project/.venv/bin/python3",
			prefixes: []string{"project/.venv/bin", "project/.venv/lib", "project/.venv/pyvenv.cfg",
				"versions/3.11.7/bin", "versions/3.11.7/lib"},
			links: []string{"versions/3.11", "project/.venv/lib64"},
		},
		{
			name: "an environment with a copied program, chosen by its folder",
			files: merge(pythonAt("base", "3.12"), map[string]string{
				"venv/pyvenv.cfg": "home = ROOT/base/bin\n", "venv/bin/python3": "elf", "venv/lib/python3.12/site-packages/x": ""}),
			env: map[string]string{"PATH": "/nonexistent"}, option: "ROOT/venv",
			path: "venv/bin/python3", prefixes: []string{"base/bin", "base/lib", "venv/bin", "venv/lib", "venv/pyvenv.cfg"},
		},
		{
			name:  "conda, without its configuration",
			files: merge(pythonAt("conda/envs/x", "3.12"), map[string]string{"conda/envs/x/conda-meta/history": "", "conda/envs/x/.condarc": "token", "conda/envs/x/etc/fonts/a": ""}),
			env:   map[string]string{"PATH": "ROOT/conda/envs/x/bin"},
			path:  "conda/envs/x/bin/python3", prefixes: []string{"conda/envs/x/bin", "conda/envs/x/conda-meta", "conda/envs/x/etc/fonts", "conda/envs/x/lib"},
		},
		{
			name: "Homebrew, whose kegs need each other",
			files: merge(pythonAt("brew/Cellar/python@3.12/3.12.4", "3.12"), map[string]string{
				"brew/bin/python3": "-> ../Cellar/python@3.12/3.12.4/bin/python3", "brew/opt/openssl": "dir", "brew/etc/my.cnf": "x", "brew/var/db": "x"}),
			env:  map[string]string{"PATH": "ROOT/brew/bin"},
			path: "brew/bin/python3", prefixes: []string{"brew/Cellar", "brew/bin", "brew/opt"},
		},
		{
			name:  "a prefix that is a home directory: only what is Python's",
			files: merge(pythonAt("home", "3.12"), map[string]string{"home/bin/deploy": "x", "home/share/keys": "x"}),
			env:   map[string]string{"PATH": "ROOT/home/bin", "HOME": "ROOT/home"},
			path:  "home/bin/python3.12", prefixes: []string{"home/bin/python3.12", "home/lib/libpython3.12.so.1.0", "home/lib/python3.12"},
		},
		{
			name:  "a launcher of an unknown kind is asked",
			files: merge(pythonAt("py", "3.12"), map[string]string{"shims/python3": "#!/bin/sh\nprintf '%s\\n' ROOT/py/bin/python3 ROOT/py ROOT/py\n"}),
			env:   map[string]string{"PATH": "ROOT/shims"},
			path:  "py/bin/python3", prefixes: []string{"py/bin", "py/lib"},
		},
		{
			name:  "a launcher that fails gives way",
			files: merge(pythonAt("py", "3.12"), map[string]string{"shims/python3": "#!/bin/sh\necho no version set >&2; exit 1\n"}),
			env:   map[string]string{"PATH": "ROOT/shims:ROOT/py/bin"},
			path:  "py/bin/python3", prefixes: []string{"py/bin", "py/lib"},
		},
		{
			name:  "chosen by name",
			files: merge(pythonAt("py", "3.12"), pythonAt("other", "3.9")),
			env:   map[string]string{"PATH": "ROOT/py/bin:ROOT/other/bin"}, option: "python3.9",
			path: "other/bin/python3.9", prefixes: []string{"other/bin", "other/lib"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, tt.files)
			setEnv(t, root, tt.env)
			t.Chdir(filepath.Join(root, tt.cwd))
			in, err := find(context.Background(), python, strings.ReplaceAll(tt.option, "ROOT", root))
			if err != nil || in.Missing != "" {
				t.Fatalf("%v %s", err, in.Missing)
			}
			checkInterpreter(t, root, in, tt.path, tt.prefixes, tt.links)
		})
	}
}

func setEnv(t *testing.T, root string, env map[string]string) {
	t.Helper()
	for _, name := range []string{"PYENV_ROOT", "PYENV_VERSION", "NODENV_ROOT", "NODENV_VERSION", "NVM_DIR", "VIRTUAL_ENV"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", filepath.Join(root, "nobody"))
	for name, value := range env {
		t.Setenv(name, strings.ReplaceAll(value, "ROOT", root))
	}
}

func checkInterpreter(t *testing.T, root string, in Interpreter, path string, prefixes, links []string) {
	t.Helper()
	if want := filepath.Join(root, path); in.Path != want {
		t.Errorf("path %s, want %s", in.Path, want)
	}
	var want []string
	for _, p := range prefixes {
		want = append(want, filepath.Join(root, p))
	}
	if !slices.Equal(in.Prefixes, want) {
		t.Errorf("prefixes\n%s, want\n%s", strings.Join(in.Prefixes, "\n"), strings.Join(want, "\n"))
	}
	if len(in.Links) != len(links) {
		t.Errorf("links %v, want %v", in.Links, links)
	}
	for _, link := range links {
		if in.Links[filepath.Join(root, link)] == "" {
			t.Errorf("no link %s in %v", link, in.Links)
		}
	}
}

func TestFindNode(t *testing.T) {
	nvm := map[string]string{
		".nvm/versions/node/v18.20.0/bin/node":               "elf",
		".nvm/versions/node/v20.9.0/bin/node":                "elf",
		".nvm/versions/node/v20.11.1/bin/node":               "elf",
		".nvm/versions/node/v20.11.1/etc/npmrc":              "password",
		".nvm/versions/node/v20.11.1/lib/node_modules/npm/x": "",
		".nvm/versions/node/v22.1.0/bin/node":                "elf",
	}
	for _, tt := range []struct {
		name     string
		files    map[string]string
		env      map[string]string
		path     string
		prefixes []string
	}{
		{
			name: "nvm in PATH", files: nvm, env: map[string]string{"PATH": "ROOT/.nvm/versions/node/v20.11.1/bin"},
			path: ".nvm/versions/node/v20.11.1/bin/node", prefixes: []string{".nvm/versions/node/v20.11.1/bin", ".nvm/versions/node/v20.11.1/lib"},
		},
		{
			name:  "nodenv",
			files: map[string]string{".nodenv/shims/node": nodeShim, ".nodenv/version": "20.1.0", ".nodenv/versions/20.1.0/bin/node": "elf"},
			env:   map[string]string{"PATH": "ROOT/.nodenv/shims"},
			path:  ".nodenv/versions/20.1.0/bin/node", prefixes: []string{".nodenv/versions/20.1.0/bin"},
		},
		{
			name: "a program alone in the home directory's bin", files: map[string]string{"home/bin/node": "elf", "home/bin/deploy": "elf", "home/share/keys": ""},
			env:  map[string]string{"PATH": "ROOT/home/bin", "HOME": "ROOT/home"},
			path: "home/bin/node", prefixes: []string{"home/bin/node"},
		},
		{
			name: "in .local", files: map[string]string{"home/.local/bin/node": "elf", "home/.local/share/keys": ""},
			env:  map[string]string{"PATH": "ROOT/home/.local/bin", "HOME": "ROOT/home"},
			path: "home/.local/bin/node", prefixes: []string{"home/.local/bin/node"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, tt.files)
			setEnv(t, root, tt.env)
			in, err := find(context.Background(), node, "")
			if err != nil || in.Missing != "" {
				t.Fatalf("%v %s", err, in.Missing)
			}
			checkInterpreter(t, root, in, tt.path, tt.prefixes, nil)
		})
	}

	for alias, want := range map[string]string{"20": "v20.11.1", "v18.20.0": "v18.20.0", "node": "v22.1.0", "lts/*": "v20.11.1", "": "v22.1.0"} {
		t.Run("nvm's default "+alias, func(t *testing.T) {
			root := tree(t, merge(nvm, map[string]string{".nvm/alias/default": alias + "\n", ".nvm/alias/lts/*": "lts/iron\n", ".nvm/alias/lts/iron": "v20.11.1\n"}))
			if got := filepath.Base(nvmDefault(filepath.Join(root, ".nvm"))); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestFindRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, option, want string
		files              map[string]string
	}{
		{name: "no such file", option: "ROOT/none", want: "no such file"},
		{name: "no such name", option: "python9", want: "not found in PATH"},
		{name: "a text file", option: "ROOT/x", files: map[string]string{"x": "hello"}, want: "neither a program nor a script"},
		{name: "a folder without one", option: "ROOT", want: "no such file"},
		{name: "a NUL byte", option: "a\x00b", want: "not a path"},
		{name: "an environment that is a home", option: "ROOT/home", want: "directory of its own",
			files: map[string]string{"home/pyvenv.cfg": "home = /usr/bin\n", "home/bin/python3": "elf"}},
		{name: "a program without its library", option: "ROOT/py/bin/python3", files: map[string]string{"py/bin/python3": "#!/bin/sh\nprintf '%s\\n' ROOT/py/bin/python3 ROOT/py ROOT/py\n"}, want: "unknown kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, tt.files)
			setEnv(t, root, map[string]string{"PATH": "/nonexistent", "HOME": "ROOT/home"})
			_, err := Find(context.Background(), Options{Python: strings.ReplaceAll(tt.option, "ROOT", root)})
			var e *fault.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--python") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFindMissing(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	lang := python
	lang.fallback = func() []string { return nil }
	in, err := find(context.Background(), lang, "")
	if err != nil || in.Path != "" || !strings.Contains(in.Missing, "python3 was not found in PATH: install it with: ") {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestInstallCommand(t *testing.T) {
	for _, tt := range []struct{ id, like, program, want string }{
		{"debian", "", "node", "apt-get install nodejs"},
		{"linuxmint", "ubuntu debian", "python3", "apt-get install python3"},
		{"alpine", "", "python3", "apk add python3"},
		{"rocky", "rhel centos fedora", "bash", "dnf install bash"},
		{"arch", "", "python3", "pacman -S python"},
		{"unheard-of", "", "node", "this system's package manager (package nodejs)"},
	} {
		if got := installCommand(tt.id, tt.like, tt.program); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.id, got, tt.want)
		}
	}
}

func TestCheckPrefix(t *testing.T) {
	t.Setenv("HOME", "/data/me")
	for path, ok := range map[string]bool{
		"/": false, "/etc": false, "/etc/ssl": false, "/home": false, "/home/me": false, "/root": false, "/data/me": false,
		"/var": false, "/var/lib": false, "/proc/1/root": false, "/tmp": false, "relative": false, "/opt": false, "/a/../b": false,
		"/root/.pyenv/versions/3.11.7/bin": true, "/opt/python": true, "/data/me/venv/lib": true, "/nix/store": true,
	} {
		if err := checkPrefix(path); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for b.Loop() {
		if _, err := Find(context.Background(), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
