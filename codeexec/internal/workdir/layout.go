// Package workdir is what all workspaces have in common, wherever they are: how
// their folders are called and laid out, which paths and patterns are theirs,
// how inputs are named, and how files get in and out in one archive.
//
// Paths are relative, with slashes. What comes from a model (patterns, names)
// and what comes from a workspace (names, sizes, archives, records) is hostile.
package workdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Bounds, in bytes unless said otherwise.
const (
	MaxPath    = 1024
	maxID      = 40      // of an execution id in a folder's name
	maxIDGiven = 4096    // of an execution id
	maxDepth   = 64      // folders below one that is copied
	MaxEntries = 100_000 // files and folders of one archive

	maxArg  = 120 << 10 // of one argument or variable
	maxArgs = 1 << 20   // of all of a program's
)

// Dirs are the folders of every workspace.
var Dirs = []string{codeexec.DirSkills, codeexec.DirWork, codeexec.DirRuns, codeexec.DirOut}

// Name returns the folder's name of a new workspace: ws_ID_TIME.
func Name(execID string, now time.Time) string {
	return "ws_" + sanitize(execID) + "_" + strconv.FormatInt(now.UnixNano(), 10)
}

// PersistentName returns the folder's name of the workspace that is kept for an
// execution id. Ids that look the same in it have different hashes.
func PersistentName(execID string) string {
	sum := sha256.Sum256([]byte(execID))
	return "ws_" + sanitize(execID) + "_" + hex.EncodeToString(sum[:8])
}

// CheckID refuses an execution id that no caller means.
func CheckID(execID string) error {
	if len(execID) > maxIDGiven {
		return fmt.Errorf("an execution id of more than %d bytes", maxIDGiven)
	}
	return nil
}

func sanitize(id string) string {
	var b strings.Builder
	for _, r := range id {
		if b.Len() == maxID {
			break
		}
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	return b.String()
}

// RunDir returns the folder of one program's run, below the workspace.
func RunDir(now time.Time, n uint64) string {
	return path.Join(codeexec.DirRuns, "run_"+now.UTC().Format("20060102T150405.000")+"_"+strconv.FormatUint(n, 10))
}

// CleanPath is the PATH of a clean environment.
const CleanPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// Env returns the variables of a program in the workspace at root, an absolute
// path there; the caller's own win. run is its RunDir.
func Env(root, run string, own map[string]string) map[string]string {
	env := map[string]string{
		codeexec.EnvWorkspaceDir: root,
		codeexec.EnvSkillsDir:    path.Join(root, codeexec.DirSkills),
		codeexec.EnvWorkDir:      path.Join(root, codeexec.DirWork),
		codeexec.EnvOutputDir:    path.Join(root, codeexec.DirOut),
		codeexec.EnvRunDir:       path.Join(root, run),
	}
	maps.Copy(env, own)
	return env
}

// CheckEnv refuses variables that no system takes.
func CheckEnv(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.IndexByte(value, 0) >= 0 {
			return fmt.Errorf("%.100q is no name of a variable, or its value holds a NUL", name)
		}
	}
	return nil
}

// CheckArgs refuses arguments and variables that no system takes: with a NUL, of
// more than 120 KiB each (Linux takes 128), or of more than 1 MiB together. The
// error is a *cubby.Error.
func CheckArgs(lists ...[]string) error {
	invalid := func(hint, format string, args ...any) error {
		return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	total := 0
	for _, a := range slices.Concat(lists...) {
		if strings.IndexByte(a, 0) >= 0 {
			return invalid("", "an argument holds a NUL")
		}
		if len(a) > maxArg {
			return invalid("put it into a file or on stdin", "an argument or variable of %d bytes: at most %d", len(a), maxArg)
		}
		total += len(a) + 9 // a pointer and the NUL at its end
	}
	if total > maxArgs {
		return invalid("put them into a file or on stdin", "arguments and variables of %d bytes: at most %d", total, maxArgs)
	}
	return nil
}

// Clean returns a path below the workspace in its shortest form. "." and ""
// are the workspace itself, which only some callers mean. What leads outside,
// absolute paths and names that would confuse a terminal or another system are
// [codeexec.ErrBadPath].
func Clean(p string) (string, error) {
	if why := badName(p); why != "" {
		return "", fmt.Errorf("%w: %s: %.200q", codeexec.ErrBadPath, why, p)
	}
	if path.IsAbs(p) {
		return "", fmt.Errorf("%w: an absolute path: %.200q", codeexec.ErrBadPath, p)
	}
	clean := path.Clean(p)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%w: it leads outside: %.200q", codeexec.ErrBadPath, p)
	}
	return clean, nil
}

// CleanFile is Clean for a path that must not be the workspace itself.
func CleanFile(p string) (string, error) {
	clean, err := Clean(p)
	if err == nil && clean == "." {
		err = fmt.Errorf("%w: %.200q is the workspace itself", codeexec.ErrBadPath, p)
	}
	return clean, err
}

// CheckName is what a name that a workspace gave is worth: nil if it is a clean
// path below it. The error says why not, for people.
func CheckName(name string) error {
	if why := badName(name); why != "" {
		return errors.New(why)
	}
	if name == "" || name == "." || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") {
		return errors.New("the name is not safe")
	}
	return nil
}

func badName(name string) string {
	switch {
	case len(name) > MaxPath:
		return fmt.Sprintf("the name has more than %d bytes", MaxPath)
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool {
		return r == '\\' || r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	}):
		return "the name holds control characters or a backslash"
	}
	return ""
}

// Show makes a name that a workspace gave fit for a report.
func Show(name string) string {
	if len(name) > MaxPath {
		name = name[:MaxPath]
	}
	name = strings.ToValidUTF8(name, "\uFFFD")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, name)
}
