//go:build linux

package files

import (
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// filesUser checks a request for /files and says who it acts as. The user is in
// the query, where a signature covers it; no other header names one.
func (s *Service) filesUser(r *http.Request, operation string) (settings.Account, error) {
	if err := s.checkFiles(r, operation); err != nil {
		return settings.Account{}, err
	}
	a, err := s.settings.Account(r.URL.Query().Get("username"))
	if err != nil {
		return a, denied(err.Error())
	}
	return a, nil
}

// Download is GET /files: the file as it is, with ranges and conditions, or
// whole and compressed.
func (s *Service) Download(w http.ResponseWriter, r *http.Request) {
	a, err := s.filesUser(r, "read")
	if err != nil {
		answerError(w, err)
		return
	}
	name, err := a.Path(r.URL.Query().Get("path"))
	if err != nil {
		reply.Error(w, http.StatusBadRequest, err.Error())
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
		reply.Error(w, http.StatusNotAcceptable, "no acceptable encoding: the file comes plain or as gzip")
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
