//go:build linux

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

func denied(message string) error { return &httpError{http.StatusUnauthorized, message} }

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
		reply.Error(w, he.status, he.message)
	case noSpace(err):
		reply.Error(w, http.StatusInsufficientStorage, "not enough space on the sandbox's disk")
	case errors.Is(err, fs.ErrNotExist):
		reply.Error(w, http.StatusNotFound, err.Error())
	case errors.As(err, &tooLarge):
		reply.Error(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		reply.Error(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ETXTBSY):
		reply.Error(w, http.StatusForbidden, err.Error())
	default:
		reply.Error(w, http.StatusInternalServerError, err.Error())
	}
}
