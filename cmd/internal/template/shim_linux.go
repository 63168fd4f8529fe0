package template

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// versionManager is an rbenv-like manager: pyenv, nodenv. Its shims are scripts
// in ROOT/shims, its versions directories in ROOT/versions.
type versionManager struct {
	root, version string // environment variables
	file          string // names a version, in the working directory or above
	prefix        string // that a version may be written with
}

var shimExec = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\s*exec "?([^"\s]*/)?(pyenv|nodenv)"? exec `)
})

// shimRoot reports whether the script at path is one of the manager's shims and
// which tree it belongs to.
func (m *versionManager) shimRoot(path, head string) (string, bool) {
	if !strings.HasPrefix(head, "#!") || !shimExec().MatchString(head) {
		return "", false
	}
	for line := range strings.Lines(head) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "export "+m.root+"="); ok {
			if root := strings.Trim(value, `"'`); filepath.IsAbs(root) && !strings.Contains(root, "$") {
				return root, true
			}
		}
	}
	if root := os.Getenv(m.root); filepath.IsAbs(root) {
		return root, true
	}
	if dir := filepath.Dir(path); filepath.Base(dir) == "shims" {
		return filepath.Dir(dir), true
	}
	return "", false
}

// resolve finds the program that the shim called name would run now.
func (m *versionManager) resolve(root, name string) (string, error) {
	versions, origin := m.wanted(root)
	for _, version := range versions {
		if version == "system" {
			for _, path := range searchPath([]string{name}) {
				if !under(path, root) && !strings.HasSuffix(filepath.Dir(path), "/shims") {
					return path, nil
				}
			}
			continue
		}
		for _, v := range []string{version, strings.TrimPrefix(version, m.prefix)} {
			if dir := matchVersion(filepath.Join(root, "versions"), v); dir != "" {
				path := filepath.Join(dir, "bin", name)
				if _, err := os.Stat(path); err == nil {
					return path, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s chooses %s, which is not installed below %s",
		origin, strings.Join(versions, ", "), filepath.Join(root, "versions"))
}

// wanted lists the chosen versions, best first, and what chose them.
func (m *versionManager) wanted(root string) (versions []string, origin string) {
	if v := os.Getenv(m.version); v != "" {
		return strings.Split(v, ":"), m.version
	}
	if dir, err := os.Getwd(); err == nil {
		for {
			if v := versionFile(filepath.Join(dir, m.file)); v != nil {
				return v, filepath.Join(dir, m.file)
			}
			if dir == "/" {
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	if v := versionFile(filepath.Join(root, "version")); v != nil {
		return v, filepath.Join(root, "version")
	}
	return []string{"system"}, "the default"
}

// versionFile reads a list of versions: words, comments after "#".
func versionFile(path string) []string {
	text, err := readSmall(path, 64<<10)
	if err != nil {
		return nil
	}
	var versions []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for _, v := range strings.Fields(line) {
			if v != "." && v != ".." && !strings.HasPrefix(v, "/") && !strings.Contains(v, "../") {
				versions = append(versions, v)
			}
		}
	}
	return versions
}

// matchVersion returns the directory below dir that version names: itself, or
// the newest one that it is the beginning of ("3.11" means 3.11.7).
func matchVersion(dir, version string) string {
	if version == "" {
		return ""
	}
	exact := filepath.Join(dir, version)
	if info, err := os.Stat(exact); err == nil && info.IsDir() && under(exact, dir) && exact != dir {
		return exact
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	best := ""
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), version+".") && (best == "" || versionLess(best, e.Name())) {
			best = e.Name()
		}
	}
	if best == "" {
		return ""
	}
	return filepath.Join(dir, best)
}

// versionLess orders dotted version numbers.
func versionLess(a, b string) bool {
	as, bs := strings.Split(strings.TrimPrefix(a, "v"), "."), strings.Split(strings.TrimPrefix(b, "v"), ".")
	for i := 0; i < len(as) && i < len(bs); i++ {
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		switch {
		case errX != nil || errY != nil:
			if as[i] != bs[i] {
				return as[i] < bs[i]
			}
		case x != y:
			return x < y
		}
	}
	return len(as) < len(bs)
}

// nodeFallback looks where version managers keep Node when only interactive
// shells have it in PATH.
func nodeFallback() []string {
	found := []string{"/usr/bin/node", "/usr/bin/nodejs", "/usr/local/bin/node"}
	home := os.Getenv("HOME")
	nvm := os.Getenv("NVM_DIR")
	if nvm == "" && home != "" {
		nvm = filepath.Join(home, ".nvm")
	}
	if nvm != "" {
		if dir := nvmDefault(nvm); dir != "" {
			found = append(found, filepath.Join(dir, "bin", "node"))
		}
	}
	if home != "" {
		found = append(found,
			filepath.Join(home, ".local/share/fnm/aliases/default/bin/node"),
			filepath.Join(home, ".volta/bin/node"))
	}
	return found
}

// nvmDefault resolves nvm's default alias, or its newest version without one.
func nvmDefault(nvm string) string {
	versions := filepath.Join(nvm, "versions", "node")
	alias := "default"
	for range 5 {
		text, err := readSmall(filepath.Join(nvm, "alias", alias), 4096)
		next := strings.TrimSpace(string(text))
		if err != nil || next == "" || strings.Contains(next, "..") {
			break
		}
		alias = next
	}
	version := alias
	if version != "" && version[0] >= '0' && version[0] <= '9' {
		version = "v" + version
	}
	if dir := matchVersion(versions, version); dir != "" {
		return dir
	}
	entries, err := os.ReadDir(versions)
	if err != nil {
		return ""
	}
	best := ""
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "v") && (best == "" || versionLess(best, e.Name())) {
			best = e.Name()
		}
	}
	if best == "" {
		return ""
	}
	return filepath.Join(versions, best)
}

// answer is what an interpreter says about itself. Node gives no prefixes.
type answer struct {
	executable, prefix, basePrefix string
}

// ask runs a launcher once, with the caller's rights and environment, to learn
// what stands behind it.
func ask(ctx context.Context, lang language, path string) (answer, error) {
	out, err := runBounded(ctx, nil, path, lang.ask...)
	if err != nil {
		return answer{}, fmt.Errorf("asking %s where it lives: %w", path, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		if !filepath.IsAbs(line) {
			return answer{}, fmt.Errorf("asking %s where it lives: strange answer %.100q", path, out)
		}
	}
	a := answer{executable: filepath.Clean(lines[0])}
	if len(lines) == 3 {
		a.prefix, a.basePrefix = filepath.Clean(lines[1]), filepath.Clean(lines[2])
	}
	return a, nil
}

// runBounded runs a program of the host for at most five seconds and returns the
// first 64 KiB of its output. Its environment is env, or ours if that is nil.
func runBounded(ctx context.Context, env []string, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	out, complaint := &boundedBuffer{limit: 64 << 10}, &boundedBuffer{limit: 4096}
	cmd.Stdout, cmd.Stderr = out, complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if line := lastLine(complaint.String()); line != "" {
			err = fmt.Errorf("%w: %.200q", err, line)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// boundedBuffer keeps the first limit bytes and drops the rest.
type boundedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, b.limit-b.Len()))])
	return len(p), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// readSmall reads a regular file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, errors.New("not a small regular file")
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
