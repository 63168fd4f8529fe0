//go:build linux

package guest

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// maxUploads bounds the files of one POST /files.
const maxUploads = 10_000

// httpError is an error with the status to answer.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// answerError writes err in E2B's form, with the status that fits.
func answerError(w http.ResponseWriter, err error) {
	var he *httpError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &he):
		writeError(w, he.status, he.message)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		writeError(w, http.StatusInsufficientStorage, "not enough space in the sandbox")
	case errors.Is(err, fs.ErrNotExist):
		writeError(w, http.StatusNotFound, err.Error())
	case errors.As(err, &tooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, fs.ErrPermission):
		writeError(w, http.StatusForbidden, err.Error())
	default:
		writeError(w, http.StatusInternalServerError, err.Error())
	}
}

// filesUser checks a request for /files and says who it acts as.
func (g *Guest) filesUser(w http.ResponseWriter, r *http.Request, operation string) (account, bool) {
	if err := g.checkFiles(r, operation); err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return account{}, false
	}
	name := r.URL.Query().Get("username")
	if name == "" {
		name = requestUser(r.Header)
	}
	a, err := g.account(name)
	if err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return account{}, false
	}
	return a, true
}

// openRegular opens a regular file and nothing else: it never waits for the other
// end of a pipe.
func openRegular(name string, flags int, perm uint32) (*os.File, error) {
	fd, err := syscall.Open(name, flags|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOCTTY, perm)
	for err == syscall.EINTR {
		fd, err = syscall.Open(name, flags|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOCTTY, perm)
	}
	switch err {
	case nil:
	case syscall.EISDIR:
		return nil, badRequest("path '%s' is a directory", name)
	case syscall.ENOENT:
		return nil, &httpError{http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", name)}
	case syscall.ENXIO:
		return nil, badRequest("path '%s' is not a regular file", name)
	case syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG:
		return nil, badRequest("path '%s': %v", name, err)
	default:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		syscall.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return os.NewFile(uintptr(fd), name), nil
	case syscall.S_IFDIR:
		err = badRequest("path '%s' is a directory", name)
	default:
		err = badRequest("path '%s' is not a regular file", name)
	}
	syscall.Close(fd)
	return nil, err
}

func (g *Guest) handleDownload(w http.ResponseWriter, r *http.Request) {
	a, ok := g.filesUser(w, r, "read")
	if !ok {
		return
	}
	name, err := a.path(r.URL.Query().Get("path"))
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	f, err := openRegular(name, syscall.O_RDONLY, 0)
	if err != nil {
		answerError(w, err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		answerError(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	h.Add("Vary", "Accept-Encoding")
	plain, zipped := encodings(r.Header.Get("Accept-Encoding"))
	switch {
	case zipped && r.Header.Get("Range") == "" && st.Size() > 0:
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Type", contentType(name))
		h.Set("Last-Modified", st.ModTime().UTC().Format(http.TimeFormat))
		if r.Method == http.MethodHead {
			return
		}
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if _, err := io.Copy(z, f); err != nil {
			panic(http.ErrAbortHandler) // half a file must not look whole
		}
		_ = z.Close()
	case plain:
		h.Set("Content-Type", contentType(name))
		http.ServeContent(w, r, path.Base(name), st.ModTime(), f)
	default:
		writeError(w, http.StatusNotAcceptable, "no acceptable encoding: the file comes plain or as gzip")
	}
}

func contentType(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// encodings says which forms of a body an Accept-Encoding header allows.
func encodings(accept string) (plain, zipped bool) {
	plain = true
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		q := 1.0
		if v, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			q, _ = strconv.ParseFloat(v, 64)
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			zipped = q > 0
		case "identity", "*":
			if q == 0 {
				plain = false
			}
		}
	}
	return plain, zipped
}

// maxUnread is how much of a refused upload is read, in bytes.
const maxUnread = 256 << 20

func (g *Guest) handleUpload(w http.ResponseWriter, r *http.Request) {
	a, ok := g.filesUser(w, r, "write")
	if !ok {
		return
	}
	entries, err := g.upload(a, r)
	if err != nil {
		// A client that is still sending would see its connection break instead
		// of the answer.
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxUnread))
		answerError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, entries)
}

// parseMode reads an octal file mode; empty is -1.
func parseMode(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	mode, err := strconv.ParseInt(s, 8, 32)
	if err != nil || mode < 0 || mode > 0o7777 {
		return 0, badRequest("mode: '%s' is not an octal file mode", s)
	}
	return mode, nil
}

func (g *Guest) upload(a account, r *http.Request) ([]protocol.EntryInfo, error) {
	q := r.URL.Query()
	mode, err := parseMode(q.Get("mode"))
	if err != nil {
		return nil, err
	}
	switch e := strings.ToLower(r.Header.Get("Content-Encoding")); e {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, badRequest("the body is not gzip: %v", err)
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{z, r.Body}
	default:
		return nil, badRequest("unknown Content-Encoding '%s': the body comes plain or as gzip", e)
	}
	given := q.Get("path")
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.Header.Get("Content-Type") != "" {
		return nil, badRequest("Content-Type: %v", err)
	}
	if media != "multipart/form-data" {
		if given == "" {
			return nil, badRequest("the path query parameter is missing")
		}
		e, err := g.store(a, given, r.Body, mode)
		if err != nil {
			return nil, err
		}
		return []protocol.EntryInfo{e}, nil
	}

	parts, err := r.MultipartReader()
	if err != nil {
		return nil, badRequest("multipart: %v", err)
	}
	entries := []protocol.EntryInfo{}
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, badRequest("multipart: %v", err)
		}
		name, target := disposition(part.Header.Get("Content-Disposition"))
		if name != "file" {
			continue
		}
		if given != "" {
			target = given
		}
		if target == "" {
			return nil, badRequest("a file has no name")
		}
		abs, err := a.path(target)
		if err != nil {
			return nil, badRequest("%v", err)
		}
		if slices.ContainsFunc(entries, func(e protocol.EntryInfo) bool { return e.Path == abs }) {
			return nil, badRequest("path '%s' is given twice", abs)
		}
		if len(entries) == maxUploads {
			return nil, badRequest("more than %d files in one request", maxUploads)
		}
		e, err := g.store(a, target, part, mode)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
}

// disposition returns the name and the raw file name of a part: clients put a
// whole path there, which the standard library would cut.
func disposition(header string) (name, filename string) {
	_, params, err := mime.ParseMediaType(header)
	if err != nil {
		return "", ""
	}
	return params["name"], params["filename"]
}

// store writes a file as the user's. Without a mode a new file gets 0644 and an
// old one keeps its own. A new file that could not be written is removed.
func (g *Guest) store(a account, target string, from io.Reader, mode int64) (e protocol.EntryInfo, err error) {
	name, err := a.path(target)
	if err != nil {
		return e, badRequest("%v", err)
	}
	if strings.HasSuffix(target, "/") || name == "/" {
		return e, badRequest("path '%s' is a directory", name)
	}
	if err := g.makeDirs(a, path.Dir(name)); err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) && !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pe) {
			return e, badRequest("%v", err)
		}
		return e, err
	}
	_, missing := os.Stat(name)
	f, err := openRegular(name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, 0o644)
	if err != nil {
		return e, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil && missing != nil {
			_ = os.Remove(name)
		}
	}()
	if g.cfg.SwitchUser {
		if err := f.Chown(a.uid, a.gid); err != nil {
			return e, err
		}
	}
	if mode >= 0 {
		// The system call, because the package's modes have set-uid elsewhere.
		if err := syscall.Fchmod(int(f.Fd()), uint32(mode)); err != nil {
			return e, &fs.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, from, make([]byte, 64<<10)); err != nil {
		if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
			return e, badRequest("the body is not gzip: %v", err)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return e, badRequest("the body ended too soon")
		}
		return e, err
	}
	return protocol.EntryInfo{Path: name, Name: path.Base(name), Type: "file"}, nil
}
