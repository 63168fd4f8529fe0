// Command modproxy writes a file-system module proxy of the working tree's modules,
// each at the version that its siblings require: `go mod tidy`, `go get` and
// `go install` can then be tried with GOPROXY=file://FOLDER before anything is
// tagged.
//
//	modproxy -out FOLDER -version v0.2.0 MODULE-DIR…
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	out := flag.String("out", "", "folder of the proxy")
	version := flag.String("version", "", "version of every module, such as v0.2.0")
	flag.Parse()
	for _, dir := range flag.Args() {
		if err := write(*out, *version, dir); err != nil {
			fmt.Fprintf(os.Stderr, "modproxy: %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
}

// write adds the module in dir; see https://go.dev/ref/mod#goproxy-protocol.
func write(out, version, dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(content), Version: version}
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	versions := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": content} {
		if err := os.WriteFile(filepath.Join(versions, name), b, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		return err
	}
	err = create(f, m, dir)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// create writes the module's zip: the files that git knows or would add, without
// those of modules below it.
func create(f *os.File, m module.Version, dir string) error {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = dir
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	var nested []string
	var files []zip.File
	seen := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || seen[name] {
			continue // removed and not yet committed, or what a module cannot hold
		}
		seen[name] = true
		if path.Base(name) == "go.mod" && name != "go.mod" {
			nested = append(nested, path.Dir(name)+"/")
		}
		files = append(files, file{dir, name})
	}
	files = slices.DeleteFunc(files, func(f zip.File) bool {
		return slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(f.Path(), dir) })
	})
	return zip.Create(f, m, files)
}

// file is one of a module's; name has slashes.
type file struct{ dir, name string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.dir, f.name)) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.dir, f.name)) }
