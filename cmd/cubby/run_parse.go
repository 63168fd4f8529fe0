package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/flagvalue"
)

// maxSource bounds the source text, in bytes.
const maxSource = 64 << 20

// languages maps every accepted name to the sandbox's own.
var languages = map[string]string{
	"python": "python", "py": "python", "python3": "python",
	"javascript": "javascript", "js": "javascript", "node": "javascript",
	"typescript": "typescript", "ts": "typescript",
	"bash": "bash", "sh": "bash", "shell": "bash",
}

var extensions = map[string]string{
	".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
	".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".sh": "bash", ".bash": "bash",
}

const languageList = "python, javascript, typescript, bash"

func parseLanguage(name string) (string, error) {
	if l, ok := languages[strings.ToLower(strings.TrimSpace(name))]; ok {
		return l, nil
	}
	return "", usagef("unknown language %q; Cubby runs %s", name, languageList)
}

// source is the code to run.
type source struct {
	name     string // for messages
	code     string
	language string
	program  string   // what the code is told as its name: see cubby.WithProgram
	args     []string // what stands behind --
	isInput  bool     // it came from standard input, of which nothing is left
}

// readSource finds the code that the command line means. inline is the value of
// -e if it was given, and dash is where -- stood between args, -1 without one.
func readSource(args []string, dash int, inline *string, language string, stdin io.Reader) (source, error) {
	var s source
	if dash >= 0 {
		args, s.args = args[:dash], args[dash:]
	}
	var body []byte
	var err error
	switch {
	case inline != nil && len(args) > 0:
		return s, usagef("both -e and %q: give one of them; arguments of the code stand behind --", args[0])
	case inline != nil:
		s.name, body = "-e", []byte(*inline)
	case len(args) == 0:
		return s, usagef("nothing to run: give a FILE, - for standard input, or -e CODE")
	case args[0] == "":
		return s, usagef("the name of the FILE is empty")
	case len(args) > 1:
		return s, usagef("one FILE at a time, got %q as well; arguments of the code stand behind --", args[1])
	case args[0] == "-":
		s.name, s.program, s.isInput = "standard input", "-", true
		if body, err = readLimited(stdin); err != nil {
			return s, usagef("standard input: %w", err)
		}
	default:
		s.name, s.program = args[0], filepath.Base(args[0])
		if body, err = readScript(args[0]); err != nil {
			return s, err
		}
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if bytes.IndexByte(body, 0) >= 0 || !utf8.Valid(body) {
		return s, usagef("%s is binary or not UTF-8: Cubby runs source text", s.name)
	}
	s.code = string(body)
	if s.language, err = chooseLanguage(language, args, s.code); err != nil {
		return s, err
	}
	if s.language != "python" && s.language != "bash" && strings.HasPrefix(s.code, "#!") {
		s.code = "//" + s.code[2:] // a comment there, too, on the same line
	}
	return s, nil
}

func readScript(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usagef("no such file: %s", name)
	case err != nil:
		return nil, usageError{err}
	case info.IsDir():
		return nil, usagef("%s is a folder: give the file to run, and the folder with -f", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	b, err := readLimited(f)
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return b, nil
}

func readLimited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err == nil && len(b) > maxSource {
		err = fmt.Errorf("the source is larger than %d MiB", maxSource>>20)
	}
	return b, err
}

// chooseLanguage goes by -l, then the extension, then the shebang; code without
// a file is Python.
func chooseLanguage(flag string, args []string, code string) (string, error) {
	if flag != "" {
		return parseLanguage(flag)
	}
	file := len(args) == 1 && args[0] != "-"
	if file {
		if l, ok := extensions[strings.ToLower(filepath.Ext(args[0]))]; ok {
			return l, nil
		}
	}
	if l := shebang(code); l != "" {
		return l, nil
	}
	if !file {
		return "python", nil
	}
	return "", usagef("cannot tell the language of %s: give it with -l (%s)", args[0], languageList)
}

// shebang returns the language that the first line names, or "".
func shebang(code string) string {
	line, _, _ := strings.Cut(code, "\n")
	line, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return ""
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return ""
	}
	if path.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool {
			return strings.HasPrefix(w, "-") || strings.Contains(w, "=")
		})
		if len(words) == 0 {
			return ""
		}
	}
	name := strings.TrimRight(path.Base(words[0]), "0123456789.")
	switch name {
	case "ts-node", "tsx", "deno", "bun":
		return "typescript"
	case "nodejs":
		return "javascript"
	case "dash", "zsh", "ash", "ksh":
		return "bash"
	}
	return languages[name]
}

// share is one -f.
type share struct{ local, remote string }

// parseShare reads LOCAL[:PATH]. A colon belongs to LOCAL when something of the
// whole name exists, so that every file can be named.
func parseShare(s string, exists func(string) bool) (share, error) {
	local, remote := s, ""
	volume := len(filepath.VolumeName(s))
	if i := strings.LastIndexByte(s[volume:], ':'); i >= 0 && !exists(s) {
		local, remote = s[:volume+i], s[volume+i+1:]
		if remote == "" {
			return share{}, usagef("-f %s: nothing after the colon", s)
		}
	}
	if local == "" {
		return share{}, usagef("-f %s: no local file", s)
	}
	if strings.ContainsRune(s, 0) {
		return share{}, usagef("-f: a NUL byte in a name")
	}
	abs, err := filepath.Abs(local)
	if err != nil {
		return share{}, usageError{err}
	}
	base := filepath.Base(abs)
	switch {
	case remote == "":
		remote = base
	case strings.HasSuffix(remote, "/"):
		remote += base
	}
	// Home is where everything else is looked for, so a way out of it is a slip.
	if clean := path.Clean(remote); clean == ".." || strings.HasPrefix(clean, "../") {
		return share{}, usagef("-f %s: %s leads out of %s", s, remote, cubby.Home)
	}
	if !path.IsAbs(remote) {
		remote = path.Join(cubby.Home, remote)
	}
	return share{local, path.Clean(remote)}, nil
}

// readable says of what -f names why it cannot be sent.
func readable(name string) error {
	f, err := os.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("-f: no such file: %s", name)
	case err != nil:
		return usagef("-f: %w", err)
	}
	return f.Close()
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// bytesValue is a flag that holds a size in bytes.
type bytesValue = flagvalue.Size

// timeValue is a flag that holds a positive duration; a bare number is seconds.
type timeValue time.Duration

const maxTimeout = 24 * time.Hour

func (t *timeValue) Type() string { return "duration" }

// String leaves out the zeros of 1m0s.
func (t *timeValue) String() string {
	s := time.Duration(*t).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}

func (t *timeValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		d, err = time.ParseDuration(s + "s")
	}
	switch {
	case err != nil:
		return errors.New("not a duration: write 60s, 5m or a number of seconds")
	case d < time.Millisecond || d > maxTimeout:
		return fmt.Errorf("out of range: 1ms to %v", maxTimeout)
	}
	*t = timeValue(d)
	return nil
}

// parsePairs reads the values of a flag that is given once for each pair.
func parsePairs(flag string, list []string) (map[string]string, error) {
	pairs, err := flagvalue.Pairs(flag, list)
	if err != nil {
		return nil, usageError{err}
	}
	return pairs, nil
}

// check refuses what no server would grant, before one is started.
func (f *runFlags) check(changed func(string) bool) error {
	if err := f.limitFlags.check(changed); err != nil {
		return err
	}
	if changed("out-max-files") && f.outMaxFiles < 1 {
		return usagef("--out-max-files: %d is too little: at least 1", f.outMaxFiles)
	}
	for flag, v := range map[string]string{"out": f.out, "language": f.language, "python": f.python, "node": f.node} {
		if v == "" && changed(flag) {
			return usagef("--%s: nothing is given", flag)
		}
	}
	if err := checkEngine(f.engine); err != nil {
		return err
	}
	if f.out == "" {
		return nil
	}
	info, err := os.Stat(f.out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(f.out, 0o777) // what cannot be is told now, and not when the code has run
	case err == nil && !info.IsDir():
		return usagef("--out: %s is not a folder", f.out)
	}
	if err != nil {
		return usagef("--out: %w", err)
	}
	return nil
}
