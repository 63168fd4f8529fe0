package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// language is what tells one interpreter's search from another's.
type language struct {
	name     string   // for messages
	names    []string // tried in every directory of PATH, in this order
	option   string   // the command line's flag
	ask      []string // makes an unknown launcher print executable, prefix and base prefix
	real     *regexp.Regexp
	env      *versionManager // the rbenv-like manager whose shims stand in PATH
	fallback func() []string // where to look when PATH has none
}

var (
	python = language{
		name: "python3", names: []string{"python3"}, option: "--python",
		ask:  []string{"-c", "import sys;print(sys.executable);print(sys.prefix);print(sys.base_prefix)"},
		real: regexp.MustCompile(`^(python|pypy|graalpy)[0-9.]*[a-z]*(-[a-z0-9.]+)?$`),
		env:  &versionManager{root: "PYENV_ROOT", version: "PYENV_VERSION", file: ".python-version", prefix: "python-"},
		fallback: func() []string {
			return []string{"/usr/bin/python3", "/usr/local/bin/python3"}
		},
	}
	node = language{
		name: "node", names: []string{"node", "nodejs"}, option: "--node",
		ask:      []string{"-e", "console.log(process.execPath)"},
		real:     regexp.MustCompile(`^node(js)?[0-9.]*$`),
		env:      &versionManager{root: "NODENV_ROOT", version: "NODENV_VERSION", file: ".node-version", prefix: "node-"},
		fallback: nodeFallback,
	}
	bash = language{
		name: "bash", names: []string{"bash"},
		real: regexp.MustCompile(`^bash[0-9.-]*$`),
		fallback: func() []string {
			return []string{"/bin/bash", "/usr/bin/bash"}
		},
	}
)

// Find resolves python3, node and bash. An interpreter that is not there is not
// an error: its Missing says what to install. One that was asked for in opts and
// cannot be used is a *fault.Error.
func Find(ctx context.Context, opts Options) (Toolchain, error) {
	var tc Toolchain
	var err error
	if tc.Python, err = find(ctx, python, opts.Python); err != nil {
		return Toolchain{}, err
	}
	if tc.Node, err = find(ctx, node, opts.Node); err != nil {
		return Toolchain{}, err
	}
	if tc.Bash, err = find(ctx, bash, ""); err != nil {
		return Toolchain{}, err
	}
	return tc, nil
}

func find(ctx context.Context, lang language, chosen string) (Interpreter, error) {
	if strings.ContainsRune(chosen, 0) || len(chosen) > 4096 {
		return Interpreter{}, &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("%s: not a path", lang.option)}
	}
	candidates := searchPath(lang.names)
	if chosen != "" {
		candidates = chosenCandidates(lang, chosen)
	} else {
		candidates = append(candidates, lang.fallback()...)
	}

	var reasons []string
	tried := map[string]bool{}
	for _, candidate := range candidates {
		if tried[candidate] {
			continue
		}
		tried[candidate] = true
		if err := ctx.Err(); err != nil {
			return Interpreter{}, err
		}
		in, err := resolve(ctx, lang, candidate)
		if err == nil {
			return in, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || chosen != "" {
			reasons = append(reasons, fmt.Sprintf("%s: %v", candidate, err))
		}
	}

	if chosen != "" {
		reason := "not found in PATH"
		if len(reasons) > 0 {
			reason = strings.Join(reasons, "; ")
		}
		return Interpreter{}, &fault.Error{
			Code: fault.Unavailable,
			Err:  fmt.Errorf("%s %q cannot be used: %s", lang.option, chosen, reason),
			Hint: fmt.Sprintf("name a %s that this user can read and execute, or leave %s out to have it found in PATH",
				lang.name, lang.option),
		}
	}
	missing := lang.name + " was not found in PATH"
	if len(reasons) > 0 {
		missing = lang.name + " cannot be used: " + strings.Join(reasons, "; ")
	}
	return Interpreter{Missing: missing + ": " + installHint(lang.name)}, nil
}

// searchPath lists the executables of those names in PATH.
func searchPath(names []string) []string {
	var found []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue // the current directory may belong to anybody
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			if unix.Access(path, unix.X_OK) == nil {
				found = append(found, path)
			}
		}
	}
	return found
}

func chosenCandidates(lang language, chosen string) []string {
	if !strings.Contains(chosen, "/") {
		return searchPath([]string{chosen})
	}
	if rest, ok := strings.CutPrefix(chosen, "~/"); ok {
		chosen = filepath.Join(os.Getenv("HOME"), rest)
	}
	abs, err := filepath.Abs(chosen)
	if err != nil {
		return []string{chosen}
	}
	if info, err := os.Stat(abs); err == nil && info.IsDir() {
		return []string{filepath.Join(abs, "bin", lang.names[0])}
	}
	return []string{abs}
}

// resolve follows candidate, through shims and links, to an interpreter that
// can be run.
func resolve(ctx context.Context, lang language, candidate string) (Interpreter, error) {
	for range 4 { // a shim may lead to a shim
		// A launcher is judged by its name as found: venvs link python3 to python3.
		real, err := filepath.EvalSymlinks(candidate)
		if err != nil {
			return Interpreter{}, err
		}
		head, err := readHead(real)
		if err != nil {
			return Interpreter{}, err
		}
		if err := unix.Access(real, unix.X_OK); err != nil {
			return Interpreter{}, &fs.PathError{Op: "execute", Path: real, Err: err}
		}
		binary := strings.HasPrefix(head, "\x7fELF")
		if binary && lang.real.MatchString(filepath.Base(real)) {
			return place(ctx, lang, candidate, real)
		}
		if lang.ask == nil {
			return Interpreter{}, fmt.Errorf("not a program for this machine")
		}
		if root, ok := lang.env.shimRoot(candidate, head); ok {
			next, err := lang.env.resolve(root, filepath.Base(candidate))
			if err != nil {
				return Interpreter{}, err
			}
			candidate = next
			continue
		}
		// Nix wraps interpreters in scripts and small programs that set the
		// module path: they work as they are.
		if binary || strings.HasPrefix(head, "#!") {
			if store := storeOf(real); store != "" {
				return place(ctx, lang, candidate, real)
			}
			answer, err := ask(ctx, lang, candidate)
			if err != nil {
				return Interpreter{}, err
			}
			if answer.executable == candidate {
				return Interpreter{}, errors.New("a launcher of an unknown kind")
			}
			candidate = answer.executable
			continue
		}
		return Interpreter{}, errors.New("neither a program nor a script")
	}
	return Interpreter{}, errors.New("too many launchers one behind the other")
}

// readHead returns the first bytes of a regular file, enough to know a shim.
func readHead(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	buf := make([]byte, 4096)
	n, _ := f.Read(buf)
	return string(buf[:n]), nil
}
