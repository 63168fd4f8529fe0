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
	"syscall"
)

// httpError is an error with the status to answer.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// noSpace says whether err means that the disk is full. The largest file that the
// sandbox may have is as large as its disk.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// answerError writes err in E2B's form, with the status that fits.
func answerError(w http.ResponseWriter, err error) {
	var he *httpError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &he):
		writeError(w, he.status, he.message)
	case noSpace(err):
		writeError(w, http.StatusInsufficientStorage, "not enough space on the sandbox's disk")
	case errors.Is(err, fs.ErrNotExist):
		writeError(w, http.StatusNotFound, err.Error())
	case errors.As(err, &tooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		writeError(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ETXTBSY):
		writeError(w, http.StatusForbidden, err.Error())
	default:
		writeError(w, http.StatusInternalServerError, err.Error())
	}
}

// filesUser checks a request for /files and says who it acts as. The user is in
// the query, where a signature covers it; no other header names one.
func (g *Guest) filesUser(r *http.Request, operation string) (account, error) {
	if err := g.checkFiles(r, operation); err != nil {
		return account{}, err
	}
	a, err := g.account(r.URL.Query().Get("username"))
	if err != nil {
		return a, denied(err.Error())
	}
	return a, nil
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

// handleDownload is GET /files: the file as it is, with ranges and conditions, or
// whole and compressed.
func (g *Guest) handleDownload(w http.ResponseWriter, r *http.Request) {
	a, err := g.filesUser(r, "read")
	if err != nil {
		answerError(w, err)
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
	h.Add("Vary", "Accept-Encoding")
	gzipped, ok := acceptsGzip(r.Header.Values("Accept-Encoding"))
	if !ok {
		writeError(w, http.StatusNotAcceptable, "no acceptable encoding: the file comes plain or as gzip")
		return
	}
	h.Set("Content-Disposition", inline(path.Base(name)))
	h.Set("Content-Type", contentType(name))
	// Files of /proc have no size but content. An empty file is never compressed:
	// E2B's clients look for a length of 0.
	first := make([]byte, 1)
	sizeless := false
	if st.Size() == 0 {
		n, _ := f.ReadAt(first, 0)
		sizeless = n > 0
	}
	switch {
	case gzipped && !selective(r.Header) && (st.Size() > 0 || sizeless):
		h.Set("Content-Encoding", "gzip")
		sendAll(w, r, f, true)
	case sizeless:
		sendAll(w, r, f, false)
	default:
		http.ServeContent(w, r, path.Base(name), st.ModTime(), f)
	}
}

// sendAll answers with everything that can be read from f. Half of it must not
// look whole, so whatever goes wrong breaks the connection.
func sendAll(w http.ResponseWriter, r *http.Request, f *os.File, gzipped bool) {
	if r.Method == http.MethodHead {
		return
	}
	// Hidden, so that no copy happens behind the buffer's back.
	from, buf := struct{ io.Reader }{f}, make([]byte, copyBuffer)
	var err error
	if gzipped {
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if _, err = io.CopyBuffer(z, from, buf); err == nil {
			err = z.Close()
		}
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{w}, from, buf)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// selective says whether a request asks for a part of a file or only for a change,
// which are about its plain form.
func selective(h http.Header) bool {
	for _, name := range []string{"Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since", "If-None-Match", "If-Match"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

func inline(name string) string {
	if d := mime.FormatMediaType("inline", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "inline"
}

func contentType(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}
