//go:build linux

package files

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	// maxUploads bounds the files of one POST /files.
	maxUploads = 10_000
	// maxUnread is how much of a refused upload is read, in bytes.
	maxUnread = 256 << 20
	// copyBuffer is what a transfer holds in memory, in bytes.
	copyBuffer = 64 << 10
)

// Upload is POST /files: one file as it is, or several as a form.
func (s *Service) Upload(w http.ResponseWriter, r *http.Request) {
	body := r.Body
	a, err := s.filesUser(r, "write")
	asks := err != nil && r.Header.Get("Expect") != "" // before it sends anything
	var entries []protocol.EntryInfo
	if err == nil {
		entries, err = s.upload(a, r)
	}
	if err != nil {
		if !asks {
			// A client that is still sending would see its connection break
			// instead of the answer.
			_, _ = io.Copy(io.Discard, io.LimitReader(body, maxUnread))
		}
		answerError(w, err)
		return
	}
	reply.JSON(w, http.StatusOK, entries)
}

// parseMode reads an octal file mode; empty is -1.
func parseMode(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	mode, err := strconv.ParseInt(s, 8, 32)
	if err != nil || mode < 0 || mode > 0o7777 {
		return 0, badRequest("mode: '%s' is not an octal file mode", reply.Cut(s))
	}
	return mode, nil
}

// writing is what all files of an upload have in common.
type writing struct {
	a        settings.Account
	mode     int64 // -1 for what is usual
	metadata map[string]string
}

func (s *Service) upload(a settings.Account, r *http.Request) ([]protocol.EntryInfo, error) {
	q := r.URL.Query()
	mode, err := parseMode(q.Get("mode"))
	if err != nil {
		return nil, err
	}
	metadata, err := readMetadataHeaders(r.Header)
	if err != nil {
		return nil, err
	}
	to := writing{a, mode, metadata}
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, bodyError(err)
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{z, r.Body}
	default:
		return nil, badRequest("unknown Content-Encoding '%s': the body comes plain or as gzip", reply.Cut(e))
	}
	kind := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(kind)
	switch {
	case media == "application/octet-stream":
		if q.Get("path") == "" {
			return nil, badRequest("the path query parameter is missing: a body that is the file needs one")
		}
		e, err := s.store(to, q.Get("path"), r.Body)
		if err != nil {
			return nil, err
		}
		return []protocol.EntryInfo{e}, nil
	case strings.HasPrefix(media, "multipart/") && err == nil:
		return s.uploadForm(to, r)
	}
	return nil, badRequest("unsupported content type '%s': a file comes as application/octet-stream or in multipart/form-data", reply.Cut(kind))
}

// uploadForm stores the parts of a form that are called "file". The query may name
// the file if there is one; else each part's own name is its path.
func (s *Service) uploadForm(to writing, r *http.Request) ([]protocol.EntryInfo, error) {
	given := r.URL.Query().Get("path")
	r.Body = struct {
		io.Reader
		io.Closer
	}{ended(r.Body), r.Body}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, badRequest("multipart: %v", err)
	}
	entries := []protocol.EntryInfo{}
	stored := map[string]bool{}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
		name, target := disposition(part.Header.Get("Content-Disposition"))
		if name != "file" {
			continue
		}
		if given != "" {
			target = given
		}
		if target == "" {
			return nil, badRequest("a file has no name: name it in its part or in the path query parameter")
		}
		abs, err := to.a.Path(target)
		if err != nil {
			return nil, badRequest("%v", err)
		}
		if stored[abs] {
			return nil, badRequest("path '%s' is given twice in one upload: only the first file was written", abs)
		}
		if len(entries) == maxUploads {
			return nil, badRequest("more than %d files in one upload: send the rest in another", maxUploads)
		}
		e, err := s.store(to, target, part)
		if err != nil {
			return nil, err
		}
		stored[abs] = true
		entries = append(entries, e)
	}
}

// ended makes the end of a form's body an error. The standard library takes a body
// that ends between two parts, or in the header of one, for a whole form; one with
// its last boundary is not read to the end, so long as a line follows that.
func ended(body io.Reader) io.Reader {
	return io.MultiReader(body, strings.NewReader("\r\n"), failing{io.ErrUnexpectedEOF})
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// disposition returns the name and the raw file name of a part: clients put a
// whole path there, which the standard library would cut.
func disposition(header string) (name, filename string) {
	_, params, err := mime.ParseMediaType(header)
	if err != nil {
		return "", ""
	}
	return params["name"], params["filename"]
}

// bodyError gives an error of reading a request's body the status that fits.
func bodyError(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return badRequest("the body is not gzip: %v", err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return badRequest("the body ended too soon")
	}
	return badRequest("read the body: %v", err)
}

// bodyReader fills what it is given, so that the file is written in few calls: a
// form's part comes in pieces of 4 KiB, and each call is one into the sandbox's
// kernel. It remembers that it was reading that failed, not writing.
type bodyReader struct {
	from   io.Reader
	failed error
}

func (b *bodyReader) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = b.from.Read(p[n:])
		n += m
	}
	if err != nil && err != io.EOF {
		b.failed = err
	}
	return n, err
}

// store writes a file as the user's, into the file that is there, if one is: its
// links, its watchers and whoever has it open see the new content, as with E2B.
// (A file put in its place would be another one.) Without a mode a new file gets
// 0644 and an old one keeps its own. If not all could be written a new file is
// removed and an old one left empty, so that no half looks whole and a full disk
// has room again.
func (s *Service) store(to writing, target string, from io.Reader) (e protocol.EntryInfo, err error) {
	name, err := to.a.Path(target)
	if err != nil {
		return e, badRequest("%v", err)
	}
	if strings.HasSuffix(target, "/") || name == "/" {
		return e, badRequest("path '%s' is a directory", name)
	}
	if err := s.makeDirs(to.a, path.Dir(name)); err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return e, badRequest("path '%s' is not a directory", path.Dir(name))
		}
		return e, err
	}
	f, made, err := openToWrite(name)
	if err != nil {
		return e, err
	}
	defer func() {
		if err != nil {
			discard(f, name, made)
		}
		if cerr := f.Close(); err == nil && cerr != nil {
			err = cerr
		}
	}()
	if s.settings.Config.SwitchUser {
		if err := f.Chown(to.a.UID, to.a.GID); err != nil {
			return e, err
		}
	}
	if to.mode >= 0 {
		// The system call, because the package's modes have set-uid elsewhere.
		if err := syscall.Fchmod(int(f.Fd()), uint32(to.mode)); err != nil {
			return e, &fs.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	body := &bodyReader{from: from}
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, body, make([]byte, copyBuffer)); err != nil {
		if body.failed != nil {
			return e, bodyError(body.failed)
		}
		return e, err
	}
	e = protocol.EntryInfo{Path: name, Name: path.Base(name), Type: "file"}
	kept, err := writeMetadata(f, to.metadata)
	if err != nil {
		return e, err
	}
	if kept {
		e.Metadata = to.metadata
	}
	return e, nil
}

// openToWrite opens a regular file, empty, and says whether it was made.
func openToWrite(name string) (f *os.File, made bool, err error) {
	f, err = openRegular(name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, 0o644)
	if !errors.Is(err, fs.ErrExist) {
		return f, err == nil, err
	}
	f, err = openRegular(name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, 0o644)
	return f, false, err
}

// discard takes back what was written to f, which was opened as name.
func discard(f *os.File, name string, made bool) {
	_ = f.Truncate(0)
	if !made {
		return
	}
	opened, err := f.Stat()
	if err != nil {
		return
	}
	// Somebody may have put another file there meanwhile.
	if now, err := os.Lstat(name); err == nil && os.SameFile(opened, now) {
		_ = os.Remove(name)
	}
}
