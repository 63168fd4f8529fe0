package template

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// baseDirs are visible in every sandbox.
var baseDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// placement collects what an interpreter needs to be visible.
type placement struct {
	prefixes []string
	links    map[string]string
}

// place works out what the interpreter found as candidate, whose binary is
// real, needs to run at the same path in a sandbox.
func place(ctx context.Context, lang language, candidate, real string) (Interpreter, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(candidate))
	if err != nil {
		return Interpreter{}, err
	}
	path := filepath.Join(dir, filepath.Base(candidate))
	p := &placement{links: map[string]string{}}

	venv, base := "", ""
	if lang.name == python.name {
		// Python looks for pyvenv.cfg beside and above the path it is called
		// by, before it follows a link.
		if home, ok := venvHome(filepath.Dir(dir)); ok {
			venv = filepath.Dir(dir)
			if isShared(venv) {
				return Interpreter{}, fmt.Errorf("the virtual environment %s is a home directory: make one in a directory of its own", venv)
			}
			p.add(filepath.Join(venv, "pyvenv.cfg"))
			if err := p.addTree(venv); err != nil {
				return Interpreter{}, err
			}
			if home != "" {
				bin, err := p.follow(home)
				if err != nil {
					return Interpreter{}, fmt.Errorf("the virtual environment %s rests on %s: %w", venv, home, err)
				}
				base = filepath.Dir(bin)
			}
		}
	}
	if err := p.addBinary(ctx, lang, real, base); err != nil {
		return Interpreter{}, err
	}
	if _, err := p.follow(path); err != nil {
		return Interpreter{}, err
	}
	if venv == "" && !p.visible(path) {
		path = real // a link in a directory that stays outside
		p.links = map[string]string{}
		if _, err := p.follow(path); err != nil {
			return Interpreter{}, err
		}
	}
	in := Interpreter{Path: path, Prefixes: p.minimal(), Links: p.links}
	for link := range in.Links {
		if p.visible(link) {
			delete(in.Links, link)
		}
	}
	for _, prefix := range in.Prefixes {
		if err := checkPrefix(prefix); err != nil {
			return Interpreter{}, err
		}
		if err := unix.Access(prefix, unix.R_OK); err != nil {
			return Interpreter{}, &os.PathError{Op: "read", Path: prefix, Err: err}
		}
	}
	return in, nil
}

func (p *placement) add(path string) { p.prefixes = append(p.prefixes, path) }

// addBinary makes a binary and the libraries that belong to it visible. base is
// the Python installation that it is known to use, or empty.
func (p *placement) addBinary(ctx context.Context, lang language, real, base string) error {
	if covered(real, baseDirs) {
		return nil
	}
	if store := storeOf(real); store != "" {
		p.add(store)
		return nil
	}
	if brew, _, ok := strings.Cut(real, "/Cellar/"); ok {
		// Kegs need each other. The rest of a Homebrew tree (etc, var) holds
		// configuration and data.
		for _, sub := range []string{"Cellar", "opt", "lib", "bin", "share", "include"} {
			if err := p.addDir(filepath.Join(brew, sub)); err != nil {
				return err
			}
		}
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(real))
	if filepath.Base(filepath.Dir(real)) != "bin" {
		prefix = ""
	}
	p.add(real)
	if lang.name != python.name {
		if prefix != "" && !isShared(prefix) {
			return p.addTree(prefix)
		}
		return nil // one file is enough for node and bash
	}
	for _, prefix := range []string{prefix, base} {
		if prefix != "" && hasStdlib(prefix) {
			return p.addPython(prefix)
		}
	}
	a, err := ask(ctx, lang, real)
	if err != nil {
		return err
	}
	base, err = filepath.EvalSymlinks(a.basePrefix)
	if err != nil || !hasStdlib(base) {
		return fmt.Errorf("its standard library was not found in %s", filepath.Join(a.basePrefix, "lib"))
	}
	return p.addPython(base)
}

// addPython makes a Python installation visible: its usual directories, or of a
// prefix that it shares with other things only what is Python's.
func (p *placement) addPython(prefix string) error {
	if covered(prefix, baseDirs) {
		return nil
	}
	if !isShared(prefix) {
		return p.addTree(prefix)
	}
	for _, pattern := range []string{"lib/python3*", "lib/pypy3*", "lib64/python3*", "lib/libpython3*"} {
		matches, err := filepath.Glob(filepath.Join(prefix, pattern))
		if err != nil {
			return err
		}
		for _, match := range matches {
			if err := p.addDir(match); err != nil {
				return err
			}
		}
	}
	return nil
}

// addTree makes the directories of an installation visible that hold programs
// and libraries. Its configuration, where package managers keep passwords
// (pip.conf, etc/npmrc, .condarc), stays outside.
func (p *placement) addTree(prefix string) error {
	if covered(prefix, baseDirs) {
		return nil
	}
	subs := []string{"bin", "lib", "lib64", "libexec", "include", "share", "openssl", "ssl"}
	if _, err := os.Stat(filepath.Join(prefix, "conda-meta")); err == nil {
		subs = append(subs, "conda-meta", "etc/fonts", "plugins", "x86_64-conda-linux-gnu", "aarch64-conda-linux-gnu")
	}
	for _, sub := range subs {
		if err := p.addDir(filepath.Join(prefix, sub)); err != nil {
			return err
		}
	}
	return nil
}

// addDir makes path visible if it exists; a link stays one.
func (p *placement) addDir(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	real, err := p.follow(path)
	if err != nil {
		return nil // dangling
	}
	p.add(real)
	return nil
}

// follow resolves path like the kernel does and notes every link on the way.
func (p *placement) follow(path string) (string, error) {
	rest := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	real := "/"
	for hops := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		info, err := os.Lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			real = next
			continue
		}
		if hops++; hops > 40 {
			return "", errors.New("too many links")
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		p.links[next] = target
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}
	return real, nil
}

// visible reports whether a path lies in what the sandbox will see.
func (p *placement) visible(path string) bool {
	return covered(path, baseDirs) || covered(path, p.prefixes)
}

// minimal returns the prefixes without those that others contain.
func (p *placement) minimal() []string {
	return minimalPaths(p.prefixes)
}

func minimalPaths(paths []string) []string {
	sorted := slices.Compact(slices.Sorted(slices.Values(paths)))
	var kept []string
	for _, path := range sorted {
		if !covered(path, baseDirs) && !covered(path, kept) {
			kept = append(kept, path)
		}
	}
	return kept
}

func covered(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return under(path, dir) })
}

// hasStdlib reports whether prefix is where a Python keeps its library.
func hasStdlib(prefix string) bool {
	for _, pattern := range []string{"lib/python3*/os.py", "lib/pypy3*/os.py", "lib64/python3*/os.py", "lib/python3*.zip"} {
		if m, _ := filepath.Glob(filepath.Join(prefix, pattern)); len(m) > 0 {
			return true
		}
	}
	return false
}

// storeOf returns the package store that path lies in. Stores are readable by
// everybody by design, and packages in them refer to each other freely.
func storeOf(path string) string {
	for _, store := range []string{"/nix/store", "/gnu/store"} {
		if under(path, store) && path != store {
			return store
		}
	}
	return ""
}

// venvHome reads the "home" of the virtual environment at dir: where the
// program that it was made from lives.
func venvHome(dir string) (home string, ok bool) {
	text, err := readSmall(filepath.Join(dir, "pyvenv.cfg"), 64<<10)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "home" {
			if value = strings.TrimSpace(value); filepath.IsAbs(value) {
				return value, true
			}
		}
	}
	return "", true
}

// isShared reports whether a prefix holds more than one installation: somebody's
// home directory or a directory that many things are put into.
func isShared(prefix string) bool {
	if checkPrefix(prefix) != nil {
		return true
	}
	return filepath.Base(prefix) == ".local" && isShared(filepath.Dir(prefix))
}

// checkPrefix refuses to make a directory visible that is known to hold more
// than programs. It is the last line: the search above narrows before.
func checkPrefix(path string) error {
	refuse := fmt.Errorf("%s would have to be visible in the sandbox, and it holds more than programs", path)
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%q is not a clean absolute path", path)
	}
	for _, tree := range []string{"/etc", "/proc", "/sys", "/dev", "/boot"} {
		if under(path, tree) {
			return refuse
		}
	}
	switch path {
	case "/", "/home", "/root", "/var", "/var/lib", "/var/tmp", "/run", "/run/user", "/tmp", "/opt", "/srv", "/mnt",
		"/media", "/nix", "/gnu", os.Getenv("HOME"):
		return refuse
	}
	if filepath.Dir(path) == "/home" || isHome(path) {
		return refuse
	}
	return nil
}

// isHome reports whether path is the home directory of an account of this host.
func isHome(path string) bool {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), ":"); len(fields) >= 6 && filepath.Clean(fields[5]) == path {
			return true
		}
	}
	return false
}
