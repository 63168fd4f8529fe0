package cubby

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Defaults of [DownloadOptions].
const (
	DefaultDownloadFiles = 100
	DefaultDownloadBytes = 64 << 20

	maxDepth    = 64   // directories below the one that is copied
	maxNameSize = 1024 // bytes of a path that is copied
)

// DownloadOptions bound [Files.Download].
type DownloadOptions struct {
	MaxFiles int                 // 0 means 100
	MaxBytes int64               // 0 means 64 MiB
	Filter   func(e Entry) error // nil copies all; an error leaves e with that reason, ErrSkip without one
}

// ErrSkip makes [DownloadOptions.Filter] leave an entry without a word.
var ErrSkip = errors.New("skipped")

// Download is what [Files.Download] did.
type Download struct {
	Files []Downloaded
	Left  []Left
}

// Downloaded is a file that was copied.
type Downloaded struct {
	Path string // slash-separated, below the local folder
	Size int64  // bytes
	Mode fs.FileMode
}

// Left is something that was not copied.
type Left struct {
	Path string // as the sandbox names it, below the remote folder: hostile text
	Why  error
}

// Download copies the files below remote into the local folder dir, which is
// made if need be. Names from the sandbox are hostile: nothing is written
// outside dir, no link is followed or made, and names that a terminal or
// another system would take wrong are left. Existing files of the same name are
// replaced, each as a whole. What is over the bounds of opts is left and named
// in the answer, which is never nil when err is nil.
func (f Files) Download(ctx context.Context, remote, dir string, opts DownloadOptions) (*Download, error) {
	const op = "download"
	remote = inHome(remote)
	entries, err := f.List(ctx, remote, maxDepth)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	defer root.Close()
	d := downloader{
		files: f, root: root, filter: opts.Filter,
		full: map[string]bool{}, filesLeft: cmp.Or(opts.MaxFiles, DefaultDownloadFiles), bytesLeft: cmp.Or(opts.MaxBytes, DefaultDownloadBytes),
	}
	for _, e := range entries {
		d.full[path.Dir(e.Path)] = true
	}
	for _, e := range entries {
		rel, why := d.one(ctx, remote, e)
		if ctx.Err() != nil {
			return &d.done, fail(op, CodeCanceled, context.Cause(ctx))
		}
		if code := CodeOf(why); code == CodeSandboxGone || code == CodeUnavailable {
			return &d.done, fail(op, code, why)
		}
		if why != nil && !errors.Is(why, ErrSkip) {
			d.done.Left = append(d.done.Left, Left{rel, why})
		}
	}
	return &d.done, nil
}

type downloader struct {
	files     Files
	root      *os.Root
	filter    func(Entry) error
	full      map[string]bool // folders in which something was listed
	filesLeft int
	bytesLeft int64
	done      Download
}

func (d *downloader) one(ctx context.Context, remote string, e Entry) (rel string, why error) {
	rel, err := relative(remote, e.Path)
	if err != nil {
		return cut(e.Path, maxNameSize), err
	}
	if d.filter != nil {
		if err := d.filter(e); err != nil {
			return rel, err
		}
	}
	switch {
	case e.IsDir():
		if err := d.root.MkdirAll(filepath.FromSlash(rel), 0o777); err != nil {
			return rel, fmt.Errorf("cannot make the folder: %w", err)
		}
		if d.full[e.Path] {
			return rel, nil
		}
		// Empty, or one that a listing passes over.
		if _, err := d.files.List(ctx, e.Path, 1); CodeOf(err) == CodePermissionDenied {
			return rel, err
		}
		return rel, nil
	case !e.Mode.IsRegular():
		return rel, fmt.Errorf("%s is not copied", kind(e.Mode))
	case d.filesLeft <= 0:
		return rel, errors.New("over the limit of files")
	case e.Size > d.bytesLeft:
		return rel, errors.New("over the limit of bytes")
	}
	n, err := d.copy(ctx, rel, e)
	d.bytesLeft -= n
	if err != nil {
		return rel, err
	}
	d.filesLeft--
	d.done.Files = append(d.done.Files, Downloaded{rel, n, localMode(e.Mode)})
	return rel, nil
}

// copy writes to a new file first and renames it, so that a link or a device
// that stands in the way is replaced and not written to.
func (d *downloader) copy(ctx context.Context, rel string, e Entry) (int64, error) {
	body, err := d.files.Open(ctx, e.Path)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	name := filepath.FromSlash(rel)
	parent := filepath.Dir(name)
	if err := d.root.MkdirAll(parent, 0o777); err != nil {
		return 0, fmt.Errorf("cannot make the folder: %w", err)
	}
	temp := filepath.Join(parent, ".cubby-"+rand.Text())
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, localMode(e.Mode))
	if err != nil {
		return 0, err
	}
	// The size in the listing may be untrue.
	n, err := io.Copy(file, io.LimitReader(body, d.bytesLeft+1))
	err = errors.Join(err, file.Close())
	if err == nil && n > d.bytesLeft {
		n, err = 0, errors.New("over the limit of bytes")
	}
	if err == nil {
		err = d.root.Rename(temp, name)
	}
	if err != nil {
		err = errors.Join(err, d.root.Remove(temp))
	}
	return n, err
}

// localMode keeps what is harmless of a file's mode: who may read and run it.
// The owner may always read and write.
func localMode(m fs.FileMode) fs.FileMode { return m&0o755 | 0o600 }

// relative returns name below base, both absolute paths of the sandbox, if it
// is safe to use as a local one.
func relative(base, name string) (string, error) {
	rel, ok := strings.CutPrefix(name, strings.TrimSuffix(base, "/")+"/")
	switch {
	case !ok:
		return "", errors.New("not in the folder")
	case len(rel) > maxNameSize:
		return "", errors.New("the name is too long")
	case !utf8.ValidString(rel):
		return "", errors.New("the name is not UTF-8")
	case strings.ContainsFunc(rel, unsafeInName):
		return "", errors.New("the name holds control characters or a backslash")
	case rel == "." || rel != path.Clean(rel) || !filepath.IsLocal(filepath.FromSlash(rel)):
		return "", errors.New("the name is not safe here")
	}
	for part := range strings.SplitSeq(rel, "/") {
		// Git runs programs that it finds in there.
		if strings.EqualFold(strings.TrimRight(part, ". "), ".git") {
			return "", errors.New("a .git folder is not copied")
		}
	}
	return rel, nil
}

// unsafeInName refuses characters that move a terminal's cursor, reorder text,
// or separate paths on another system.
func unsafeInName(r rune) bool {
	return r == '\\' || r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
