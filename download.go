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

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Defaults of [DownloadOptions].
const (
	DefaultDownloadFiles = 100
	DefaultDownloadBytes = 64 << 20

	maxDepth    = 64    // directories below the one that is copied
	maxNameSize = 1024  // bytes of a path that is copied
	maxLeft     = 1_000 // entries that are named as left
)

// DownloadOptions bound [Files.Download].
type DownloadOptions struct {
	MaxFiles int                 // 0 means 100
	MaxBytes int64               // 0 means 64 MiB
	Filter   func(e Entry) error // nil copies all; an error leaves e with that reason, ErrSkip without one
}

// ErrSkip makes [DownloadOptions.Filter] leave an entry without a word.
var ErrSkip = errors.New("skipped")

// Why something was left, for errors.Is. What else is left has a name that is not
// safe here, or could not be read or written.
var (
	ErrTooManyFiles = errors.New("over the limit of files")
	ErrTooManyBytes = errors.New("over the limit of bytes")
	ErrTooDeep      = fmt.Errorf("deeper than %d folders", maxDepth)
	// ErrNoContent is about what is never copied: links, devices, pipes, and
	// folders of Git, which runs programs that it finds in there.
	ErrNoContent = errors.New("is not copied")
)

// Download is what [Files.Download] did.
type Download struct {
	Files []Downloaded
	// Left names at most 1,000 entries, and LeftMore is how many more there are.
	Left     []Left
	LeftMore int
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
// replaced, each as a whole. Empty folders count as files. What is over the bounds
// of opts, or cannot be read or written, is left and named in the answer, which is
// not nil once the local folder is there: also beside an error it says what was
// copied.
func (f Files) Download(ctx context.Context, remote, dir string, opts DownloadOptions) (*Download, error) {
	const op = "download"
	remote = inHome(remote)
	d := downloader{
		files: f, filter: opts.Filter,
		filesLeft: cmp.Or(opts.MaxFiles, DefaultDownloadFiles), bytesLeft: cmp.Or(opts.MaxBytes, DefaultDownloadBytes),
	}
	// An entry is looked at when the next one has come: what is in a folder follows
	// it.
	var last *Entry
	each := func(e *Entry) error {
		before := last
		last = e
		if before == nil {
			return nil
		}
		return d.take(ctx, remote, *before, e != nil && strings.HasPrefix(e.Path, before.Path+"/"))
	}
	// The local folder is made when the remote one is known to be there.
	open := func() error {
		if d.root != nil {
			return nil
		}
		err := os.MkdirAll(dir, 0o777)
		if err == nil {
			d.root, err = os.OpenRoot(dir)
		}
		if err != nil {
			return fail(op, CodeInvalidArgument, err)
		}
		return nil
	}
	defer func() {
		if d.root != nil {
			d.root.Close()
		}
	}()
	err := f.Walk(ctx, remote, maxDepth, func(e Entry) error {
		if err := open(); err != nil {
			return err
		}
		return each(&e)
	})
	if err == nil {
		err = open() // for an empty folder
	}
	if err == nil {
		err = each(nil)
	}
	switch {
	case err == nil:
		return &d.done, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	err = fail(op, CodeCanceled, err)
	if d.root == nil {
		return nil, err
	}
	return &d.done, err
}

type downloader struct {
	files     Files
	root      *os.Root
	filter    func(Entry) error
	filesLeft int
	bytesLeft int64
	done      Download
}

// take copies an entry or notes why not; full says that it is a folder in which
// something was listed. Its error ends the download.
func (d *downloader) take(ctx context.Context, remote string, e Entry, full bool) error {
	rel, why := d.one(ctx, remote, e, full)
	if err := ctx.Err(); err != nil {
		return err
	}
	if code := CodeOf(why); code == CodeSandboxGone || code == CodeUnavailable {
		return why
	}
	switch {
	case why == nil || errors.Is(why, ErrSkip):
	case len(d.done.Left) < maxLeft:
		d.done.Left = append(d.done.Left, Left{rel, why})
	default:
		d.done.LeftMore++
	}
	return nil
}

func (d *downloader) one(ctx context.Context, remote string, e Entry, full bool) (rel string, why error) {
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
	case full:
		return rel, nil // made with what is copied into it
	case !e.IsDir() && !e.Mode.IsRegular():
		return rel, fmt.Errorf("%s %w", kind(e.Mode), ErrNoContent)
	case d.filesLeft <= 0:
		return rel, ErrTooManyFiles
	case e.IsDir():
		return rel, d.emptyFolder(ctx, rel, e)
	case e.Size > d.bytesLeft:
		return rel, ErrTooManyBytes
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

// emptyFolder makes a folder in which nothing was listed: it is empty, cannot be
// read, or is the last one that a listing reaches. It counts as a file.
func (d *downloader) emptyFolder(ctx context.Context, rel string, e Entry) error {
	switch inside, err := d.files.list(ctx, e.Path, 1, protocol.HeaderListMax, "1"); {
	case err != nil && CodeOf(err) != CodeNotFound:
		return d.files.fail(ctx, "list", err)
	case len(inside) > 0:
		return ErrTooDeep
	}
	d.filesLeft--
	if err := d.root.MkdirAll(filepath.FromSlash(rel), 0o777); err != nil {
		return fmt.Errorf("cannot make the folder: %w", cause(err))
	}
	return nil
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
		return 0, fmt.Errorf("cannot make the folder: %w", cause(err))
	}
	temp := filepath.Join(parent, ".cubby-"+rand.Text())
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, localMode(e.Mode))
	if err != nil {
		return 0, fmt.Errorf("cannot be written: %w", cause(err))
	}
	// The size in the listing may be untrue.
	n, err := io.Copy(file, io.LimitReader(body, d.bytesLeft+1))
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil && n > d.bytesLeft {
		n, err = 0, ErrTooManyBytes
	}
	if err == nil {
		err = d.root.Rename(temp, name)
	}
	if err != nil {
		_ = d.root.Remove(temp) // as far as that goes; the first error is the one to tell
		switch local := cause(err); {
		case local != err:
			err = fmt.Errorf("cannot be written: %w", local)
		case !errors.Is(err, ErrTooManyBytes):
			err = fmt.Errorf("cannot be read: %w", err)
		}
	}
	return n, err
}

// cause is a local error without the name of a file, which may be a temporary one.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
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
			return "", fmt.Errorf("a .git folder %w", ErrNoContent)
		}
	}
	return rel, nil
}

// unsafeInName refuses characters that move a terminal's cursor, reorder text,
// or separate paths on another system.
func unsafeInName(r rune) bool {
	return r == '\\' || r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
