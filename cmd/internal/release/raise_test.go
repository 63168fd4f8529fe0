package main

import (
	"archive/zip"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const base = "example.com/org/repo"

// repository is a tree of three modules: the command needs the extra one and the
// library, and the extra one the library.
func repository(t *testing.T, change map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"LICENSE": "free\n", ".gitignore": "/bin/\n", "bin/program": "built\n",
		"go.work": "go 1.24\n\nuse (\n\t.\n\t./cmd\n\t./lib/extra\n)\n\n// Why.\nreplace (\n\t" + base + " v0.2.0 => ./\n\t" +
			base + "/lib/extra v0.2.0 => ./lib/extra\n\texample.com/other v1.0.0 => ./other\n)\n",
		"go.mod":              "module " + base + "\n\ngo 1.24\n",
		"lib.go":              "package repo\n\nconst Name = \"repo\"\n",
		versionFile:           "// Package version names builds.\npackage version\n\nconst Version = \"0.2.0\"\n",
		"lib/extra/go.mod":    "module " + base + "/lib/extra\n\ngo 1.24\n\nrequire " + base + " v0.2.0\n",
		"lib/extra/extra.go":  "package extra\n\nimport \"" + base + "\"\n\nconst Name = repo.Name + \" extra\"\n",
		"cmd/go.mod":          "module " + base + "/cmd\n\ngo 1.24\n\nrequire (\n\t" + base + " v0.2.0 // indirect\n\t" + base + "/lib/extra v0.2.0\n)\n",
		"cmd/go.sum":          "example.com/kept v1.0.0/go.mod h1:x\n" + base + " v0.1.0 h1:stale\n",
		"cmd/program/main.go": "package main\n\nimport \"" + base + "/lib/extra\"\n\nfunc main() { println(extra.Name) }\n",
	}
	maps.Copy(files, change)
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, nil, "git", "init", "-q")
	commit(t, dir)
	return dir
}

func commit(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, nil, "git", "add", ".")
	run(t, dir, nil, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "x")
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// away is an environment in which the go command has nothing but proxy.
func away(t *testing.T, proxy string) []string {
	cache := t.TempDir()
	return []string{"GOWORK=off", "GOTOOLCHAIN=local", "GOMODCACHE=" + cache, "GOFLAGS=-modcacherw", "GOPROXY=" + proxy,
		"GONOSUMDB=" + base, "GONOPROXY=none", "GOPRIVATE=", "GIT_CONFIG_NOSYSTEM=1"}
}

// TestRaise: what was raised can be installed and required by others from the
// proxy alone, and each go.sum is complete and right.
func TestRaise(t *testing.T) {
	dir, proxy := repository(t, map[string]string{"new.go": "package repo\n"}), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "untracked.go"), []byte("package repo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "new.go")); err != nil {
		t.Fatal(err)
	}
	if err := raise(dir, "v0.3.0", proxy); err != nil {
		t.Fatal(err)
	}
	if status := run(t, dir, nil, "git", "diff", "--cached", "--name-only"); status != "" {
		t.Errorf("the repository's index was changed: %s", status)
	}
	env := away(t, "file://"+proxy)

	bin := t.TempDir()
	run(t, t.TempDir(), append(env, "GOBIN="+bin), "go", "install", base+"/cmd/program@v0.3.0")
	if out := run(t, bin, nil, "./program"); out != "repo extra\n" {
		t.Errorf("the installed program prints %q", out)
	}
	// In readonly mode, which is the default, a go.sum with a line missing or wrong is an error.
	run(t, filepath.Join(dir, "cmd"), env, "go", "build", "-o", os.DevNull, "./program")
	run(t, filepath.Join(dir, "lib/extra"), env, "go", "build", "./...")

	for name, want := range map[string][]string{
		versionFile: {`const Version = "0.3.0"`}, "cmd/go.sum": {"example.com/kept v1.0.0/go.mod h1:x\n"},
		"cmd/go.mod": {base + " v0.3.0 // indirect", base + "/lib/extra v0.3.0\n"},
		"go.work":    {"// Why.\nreplace (\n\t" + base + " v0.3.0 => ./\n", base + "/lib/extra v0.3.0 => ./lib/extra\n", "example.com/other v1.0.0 => ./other\n"},
	} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(string(content), part) {
				t.Errorf("%s lacks %q:\n%s", name, part, content)
			}
		}
		for _, old := range []string{"0.2.0", "v0.1.0"} {
			if strings.Contains(string(content), old) {
				t.Errorf("%s still has %s:\n%s", name, old, content)
			}
		}
	}
	for module, want := range map[string][]string{
		"":           {".gitignore", "LICENSE", "go.mod", "go.work", versionFile, "lib.go", "untracked.go"},
		"/lib/extra": {"LICENSE", "extra.go", "go.mod", "go.sum"},
		"/cmd":       {"LICENSE", "go.mod", "go.sum", "program/main.go"},
	} {
		archive, err := zip.OpenReader(filepath.Join(proxy, base+module, "@v/v0.3.0.zip"))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, f := range archive.File {
			have = append(have, strings.TrimPrefix(f.Name, base+module+"@v0.3.0/"))
		}
		archive.Close()
		if slices.Sort(have); !slices.Equal(have, want) {
			t.Errorf("module %s has %q, want %q", base+module, have, want)
		}
	}
}

// TestSumsAreThoseOfATag: the go command, fetching the tagged repository itself,
// finds the modules that the sums are of.
func TestSumsAreThoseOfATag(t *testing.T) {
	const hosted = "github.com/cubby-sandbox-test/repo"
	dir, proxy := repository(t, nil), t.TempDir()
	run(t, dir, nil, "sh", "-c", "grep -rlF "+base+" --exclude-dir=.git . | xargs sed -i 's,"+base+","+hosted+",g'")
	if err := raise(dir, "v0.3.0", proxy); err != nil {
		t.Fatal(err)
	}
	commit(t, dir)
	for _, tag := range []string{"v0.3.0", "cmd/v0.3.0", "lib/extra/v0.3.0"} {
		run(t, dir, nil, "git", "tag", tag)
	}
	config := filepath.Join(t.TempDir(), "gitconfig")
	content := "[url \"file://" + dir + "\"]\n\tinsteadOf = https://" + hosted + "\n"
	if err := os.WriteFile(config, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	env := append(away(t, "direct"), "GIT_CONFIG_GLOBAL="+config, "GIT_ALLOW_PROTOCOL=file:https", "GONOSUMDB="+hosted)
	run(t, filepath.Join(dir, "cmd"), env, "go", "mod", "download", hosted, hosted+"/lib/extra")
	run(t, filepath.Join(dir, "cmd"), env, "go", "build", "-o", os.DevNull, "./program")
}

func TestRaiseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		version string
		change  map[string]string
		want    string
	}{
		"no version":  {"0.3.0", nil, "not a version"},
		"major 2":     {"v2.0.0", nil, "/v2"},
		"a replace":   {"v0.3.0", map[string]string{"cmd/go.mod": "module " + base + "/cmd\n\ngo 1.24\n\nreplace a.example => ../a\n"}, "replace"},
		"an exclude":  {"v0.3.0", map[string]string{"cmd/go.mod": "module " + base + "/cmd\n\ngo 1.24\n\nexclude a.example v1.0.0\n"}, "exclude"},
		"a circle":    {"v0.3.0", map[string]string{"go.mod": "module " + base + "\n\ngo 1.24\n\nrequire " + base + "/lib/extra v0.2.0\n"}, "circle"},
		"no constant": {"v0.3.0", map[string]string{versionFile: "package version\n\nvar Version = \"0.2.0\"\n"}, "const Version"},
	} {
		t.Run(name, func(t *testing.T) {
			err := raise(repository(t, test.change), test.version, t.TempDir())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}
