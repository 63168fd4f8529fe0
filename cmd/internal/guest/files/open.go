//go:build linux

package files

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"syscall"
)

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
