//go:build linux

package dockertest

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tools are what the workspaces' scripts, the tests and people expect.
var tools = strings.Fields(`sh bash tar find xargs head tail base64 readlink env setsid stat mkdir rm rmdir mv cp ls cat ln
	chmod touch dirname basename sleep ps seq wc sed grep yes dd id mkfifo truncate tee sort tr uname true false stty tty printf
	timeout date du df cut sync gzip nproc mktemp od kill test echo expr`)

// Tree is the content of an image, made of this machine's files.
type Tree struct {
	links map[string]string // path -> target
	files map[string]string // path -> file of this machine
	text  map[string]string // path -> content
}

// NewTree returns the root of a machine with a shell and its tools.
func NewTree() (*Tree, error) {
	t := &Tree{links: map[string]string{}, files: map[string]string{}, text: map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsandbox:x:1000:1000::/tmp:/bin/bash\nnobody:x:65534:65534::/nonexistent:/bin/false\n",
		"etc/group":  "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
	}}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			t.links[name] = strings.TrimPrefix(target, "/")
		}
	}
	for _, tool := range tools {
		found, err := exec.LookPath(tool)
		if err != nil {
			continue // those that matter are found out by the tests
		}
		if err := t.program(found, "usr/bin/"+tool); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// AddPython adds this machine's python3 and its standard library.
func (t *Tree) AddPython() error {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		if python, err = exec.LookPath("python3"); err != nil {
			return err
		}
	}
	out, err := exec.Command(python, "-ISc", `import json, os, sys, sysconfig
print(json.dumps([os.path.realpath(sys.executable), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]))`).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", python, err)
	}
	var found []string
	if err := json.Unmarshal(out, &found); err != nil {
		return err
	}
	if err := t.program(found[0], strings.TrimPrefix(found[0], "/")); err != nil {
		return err
	}
	if found[0] != "/usr/bin/python3" {
		t.links["usr/bin/python3"] = found[0]
	}
	skip := []string{"test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages", "dist-packages", "turtledemo", "pydoc_data", "config-3"}
	for _, dir := range slices.Compact(found[1:]) {
		err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir():
				if slices.ContainsFunc(skip, func(s string) bool { return strings.HasPrefix(entry.Name(), s) }) {
					return fs.SkipDir
				}
				return nil
			case strings.HasSuffix(p, ".so"):
				return t.program(p, strings.TrimPrefix(p, "/"))
			case strings.HasSuffix(p, ".a"):
				return nil
			}
			t.files[strings.TrimPrefix(p, "/")] = p
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AddProgram adds a program of this machine.
func (t *Tree) AddProgram(name string) error {
	found, err := exec.LookPath(name)
	if err == nil {
		found, err = filepath.EvalSymlinks(found)
	}
	if err != nil {
		return err
	}
	return t.program(found, "usr/bin/"+name)
}

// program adds a program of this machine, and the libraries that it loads.
func (t *Tree) program(from, to string) error {
	t.files[to] = from
	out, err := exec.Command("ldd", from).Output()
	if err != nil {
		return nil // it is static, or a script
	}
	for line := range strings.Lines(string(out)) {
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") {
				t.files[t.place(strings.TrimPrefix(field, "/"))] = field
			}
		}
	}
	return nil
}

// place puts a path below a link where the link leads.
func (t *Tree) place(name string) string {
	first, rest, _ := strings.Cut(name, "/")
	if target, ok := t.links[first]; ok {
		return target + "/" + rest
	}
	return name
}

// Write writes the tree as a tar stream.
func (t *Tree) Write(w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, dir := range []string{"tmp", "proc", "sys", "dev", "root", "run", "etc"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode}); err != nil {
			return err
		}
	}
	for name, target := range t.links {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}); err != nil {
			return err
		}
	}
	for name, text := range t.text {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(tw, text); err != nil {
			return err
		}
	}
	for name, from := range t.files {
		if err := writeFile(tw, name, from); err != nil {
			return err
		}
	}
	return tw.Close()
}

func writeFile(tw *tar.Writer, name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
