package cubby

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Home is the working directory of a sandbox; relative paths start here.
const Home = protocol.DefaultHome

// MaxRead bounds [Files.Read], in bytes; [Files.Open] has no bound.
const MaxRead = 256 << 20

// Bounds of listings, in entries.
const (
	maxEntries = 100_000   // of one answer
	walkPage   = 10_000    // of one page of a walk
	maxWalk    = 1_000_000 // of a walk
)

// Files is the file system of a sandbox. Paths are slash-separated; relative
// ones start in [Home], whoever the user is.
type Files struct{ rpc }

// Files returns the sandbox's file system as its default user has it.
func (s *Sandbox) Files() Files { return Files{rpc{s: s}} }

// As returns the file system as another user of the sandbox has it, such as
// "root": new files are that user's. (The sandbox's service for files may reach
// whatever there is; users do not protect files from its own clients.)
func (f Files) As(user string) Files { return Files{rpc{f.s, user}} }

// Entry is one file, directory or symbolic link in a sandbox. The sandbox wrote
// it: names may hold anything but a slash, and sizes may be untrue.
type Entry struct {
	Name    string
	Path    string      // absolute
	Size    int64       // bytes, not negative
	Mode    fs.FileMode // type and permissions
	ModTime time.Time
	Owner   string
	Group   string
	// Target is where a symbolic link leads; empty for everything else.
	Target string
	// Metadata is what [WithFileMetadata] said, or code in the sandbox.
	Metadata map[string]string
}

// wireEntry is EntryInfo of envd's filesystem service in the JSON form of
// proto3: 64-bit numbers are strings.
type wireEntry struct {
	Name          string            `json:"name"`
	Type          string            `json:"type"`
	Path          string            `json:"path"`
	Size          json.RawMessage   `json:"size"`
	Mode          uint32            `json:"mode"`
	Owner         string            `json:"owner"`
	Group         string            `json:"group"`
	ModifiedTime  time.Time         `json:"modifiedTime"`
	SymlinkTarget *string           `json:"symlinkTarget"`
	Metadata      map[string]string `json:"metadata"`
}

func (w wireEntry) entry() (Entry, error) {
	e := Entry{
		Name: w.Name, Path: w.Path, Owner: w.Owner, Group: w.Group, ModTime: w.ModifiedTime,
		Mode: fs.FileMode(w.Mode) & fs.ModePerm, Metadata: w.Metadata,
	}
	if len(w.Size) > 0 {
		text := string(w.Size)
		if text[0] == '"' {
			text = text[1 : len(text)-1]
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return Entry{}, fmt.Errorf("bad size %q", cut(text, 64))
		}
		e.Size = n
	}
	switch {
	case w.SymlinkTarget != nil || w.Type == "FILE_TYPE_SYMLINK":
		e.Mode |= fs.ModeSymlink
		if w.SymlinkTarget != nil {
			e.Target = *w.SymlinkTarget
		}
	case w.Type == "FILE_TYPE_DIRECTORY":
		e.Mode |= fs.ModeDir
	case w.Type != "FILE_TYPE_FILE":
		e.Mode |= fs.ModeIrregular // a device, a pipe, a socket
	}
	return e, nil
}

// IsDir reports whether e is a directory.
func (e Entry) IsDir() bool { return e.Mode.IsDir() }

// filesystem calls a unary method of envd's filesystem service.
func (f Files) filesystem(ctx context.Context, method string, in, out any, header ...string) error {
	return f.call(ctx, "/filesystem.Filesystem/"+method, in, out, header...)
}

func (f Files) fail(ctx context.Context, op string, err error) error {
	if c := CodeOf(err); (c == CodeSandboxGone || c == CodeUnavailable) && ctx.Err() == nil {
		err = f.s.diagnose(ctx, err)
	}
	return fail(op, CodeUnavailable, ofFile(err))
}

type pathRequest struct {
	Path  string `json:"path"`
	Depth int    `json:"depth,omitempty"`
}

// Stat describes one path; a symbolic link is described itself. It fails with
// [CodeNotFound] when there is none.
func (f Files) Stat(ctx context.Context, name string) (Entry, error) {
	const op = "stat"
	var answer struct {
		Entry wireEntry `json:"entry"`
	}
	if err := f.filesystem(ctx, "Stat", pathRequest{Path: inHome(name)}, &answer); err != nil {
		return Entry{}, f.fail(ctx, op, err)
	}
	e, err := answer.Entry.entry()
	if err != nil {
		return Entry{}, fail(op, CodeInternal, err)
	}
	return e, nil
}

// List lists a directory, depth levels deep (0 means 1), in lexical order,
// parents first. Symbolic links are not followed. It fails with
// [CodeNotFound], with [CodeInvalidArgument] when name is no directory, and
// with [CodeInternal] beyond 100,000 entries, which [Files.Walk] takes.
func (f Files) List(ctx context.Context, name string, depth int) ([]Entry, error) {
	const op = "list"
	out, err := f.list(ctx, name, depth)
	if err == nil && len(out) > maxEntries {
		err = &Error{Code: CodeInternal, Err: fmt.Errorf("%s has more than %d entries", name, maxEntries)}
	}
	if err != nil {
		return nil, f.fail(ctx, op, err)
	}
	return out, nil
}

// Walk calls each with what [Files.List] lists, entry by entry in the same order,
// of which only a part is in memory at a time. It stops with the error that each
// returns. A directory that changes meanwhile may have entries left out or shown
// twice. It fails with [CodeInternal] beyond a million entries, after those.
func (f Files) Walk(ctx context.Context, name string, depth int, each func(Entry) error) error {
	const op = "walk"
	first := ""
	for seen := 0; seen < maxWalk; {
		entries, err := f.list(ctx, name, depth, protocol.HeaderListSkip, strconv.Itoa(seen), protocol.HeaderListMax, strconv.Itoa(walkPage))
		if err != nil {
			return f.fail(ctx, op, err)
		}
		// A server that knows no pages sends everything, each time.
		if len(entries) == 0 || entries[0].Path == first {
			return nil
		}
		first = entries[0].Path
		for _, e := range entries {
			if err := each(e); err != nil {
				return err
			}
		}
		if seen += len(entries); len(entries) != walkPage {
			return nil
		}
	}
	return fail(op, CodeInternal, fmt.Errorf("%s has more than %d entries", name, maxWalk))
}

// list asks for a listing, or for a page of it.
func (f Files) list(ctx context.Context, name string, depth int, header ...string) ([]Entry, error) {
	var answer struct {
		Entries []wireEntry `json:"entries"`
	}
	if err := f.filesystem(ctx, "ListDir", pathRequest{Path: inHome(name), Depth: max(depth, 1)}, &answer, header...); err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(answer.Entries))
	for _, w := range answer.Entries {
		e, err := w.entry()
		if err != nil {
			return nil, &Error{Code: CodeInternal, Err: err}
		}
		out = append(out, e)
	}
	return out, nil
}

// MakeDir makes a directory and its missing parents. A directory that is there
// already is no error, and keeps its mode. A zero mode means 0755.
func (f Files) MakeDir(ctx context.Context, name string, mode fs.FileMode) error {
	var header []string
	if mode.Perm() != 0 {
		header = []string{protocol.HeaderMode, octal(mode)}
	}
	err := f.filesystem(ctx, "MakeDir", pathRequest{Path: inHome(name)}, nil, header...)
	if err != nil && CodeOf(err) != CodeConflict {
		return f.fail(ctx, "make directory", err)
	}
	return nil
}

// Exists reports whether there is anything of that name, a broken link included.
func (f Files) Exists(ctx context.Context, name string) (bool, error) {
	_, err := f.Stat(ctx, name)
	if CodeOf(err) == CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// Move gives a file or directory another name, with the parents that are
// missing, and replaces a file that has it. It fails with [CodeNotFound], and
// with [CodeConflict] where to is a directory that is not empty or on another
// file system.
func (f Files) Move(ctx context.Context, from, to string) (Entry, error) {
	const op = "move"
	req := struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}{inHome(from), inHome(to)}
	var answer struct {
		Entry wireEntry `json:"entry"`
	}
	if err := f.filesystem(ctx, "Move", req, &answer); err != nil {
		return Entry{}, f.fail(ctx, op, err)
	}
	e, err := answer.Entry.entry()
	if err != nil {
		return Entry{}, fail(op, CodeInternal, err)
	}
	return e, nil
}

// Remove removes a file, or a directory with all that is in it. What is not there
// is no error.
func (f Files) Remove(ctx context.Context, name string) error {
	err := f.filesystem(ctx, "Remove", pathRequest{Path: inHome(name)}, nil)
	if err != nil && CodeOf(err) != CodeNotFound {
		return f.fail(ctx, "remove", err)
	}
	return nil
}

func octal(mode fs.FileMode) string { return strconv.FormatUint(uint64(mode.Perm()), 8) }

// Open reads a file as a stream, which the caller closes. It fails with
// [CodeNotFound], and with [CodeInvalidArgument] for a directory.
func (f Files) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	const op = "read"
	req, err := f.s.request(ctx, http.MethodGet, protocol.EnvdPort, "/files", f.query(name), nil)
	if err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	f.sign(req)
	resp, err := f.s.client.send(req)
	if err != nil {
		return nil, f.fail(ctx, op, err)
	}
	return resp.Body, nil
}

// Read reads a whole file of at most [MaxRead] bytes.
func (f Files) Read(ctx context.Context, name string) ([]byte, error) {
	body, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := readBounded(body, MaxRead)
	if err != nil {
		return nil, fail("read", CodeSandboxGone, err)
	}
	return b, nil
}

// query names a file as /files wants it. The user is there for servers that
// know no other way.
func (f Files) query(name string) url.Values {
	query := url.Values{"path": {inHome(name)}}
	if f.user != "" {
		query.Set("username", f.user)
	}
	return query
}

// WriteOption modifies [Files.Write].
type WriteOption func(*writeConfig)

type writeConfig struct{ metadata map[string]string }

// WithFileMetadata keeps these labels with the file, where [Files.Stat] finds
// them. Keys are ASCII letters, digits, - and _ and are taken without regard to
// case; values are printable ASCII; E2B's bound is 4 KiB in all.
func WithFileMetadata(m map[string]string) WriteOption {
	return func(c *writeConfig) { c.metadata = m }
}

// setMetadata puts the labels into the header of an upload.
func (c *writeConfig) setMetadata(h http.Header) error {
	for k, v := range c.metadata {
		badKey := strings.ContainsFunc(k, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
		})
		if k == "" || badKey {
			return fmt.Errorf("the metadata key %q is not of letters, digits, - and _", cut(k, 64))
		}
		if strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
			return fmt.Errorf("the metadata value of %q is not printable ASCII", cut(k, 64))
		}
		h.Set("X-Metadata-"+k, v)
	}
	return nil
}

// Write makes or replaces a file, with its missing parents. A zero mode means
// 0644. It fails with [CodeNoSpace] when the sandbox's disk is full.
func (f Files) Write(ctx context.Context, name string, content io.Reader, mode fs.FileMode, opts ...WriteOption) error {
	const op = "write"
	if content == nil {
		return fail(op, CodeInvalidArgument, errors.New("no content"))
	}
	query := f.query(name)
	if mode.Perm() != 0 {
		query.Set("mode", octal(mode)) // not in E2B's protocol; other servers ignore it
	}
	req, err := f.s.request(ctx, http.MethodPost, protocol.EnvdPort, "/files", query, content)
	if err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	f.sign(req)
	req.Header.Set("Content-Type", "application/octet-stream")
	var cfg writeConfig
	for _, o := range opts {
		o(&cfg)
	}
	if err := cfg.setMetadata(req.Header); err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	if err := f.s.client.exchange(req, nil); err != nil {
		return f.fail(ctx, op, err)
	}
	return nil
}

// inHome makes a path absolute, so that the answer's paths can be compared.
func inHome(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(Home, name)
}
