//go:build linux

// Package files reads and writes files for clients: envd's /files, and of its
// filesystem.Filesystem the calls that do not watch.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// MaxCall bounds one message of a call of envd's filesystem.Filesystem, in bytes: paths
// are all that they carry.
const MaxCall = 64 << 10

// Service is envd's filesystem.Filesystem.
type Service struct {
	settings *settings.Store
}

// New returns a service for the users and folders of a guest.
func New(s *settings.Store) *Service { return &Service{s} }

// Locate returns the user of a call and the path that it means.
func (s *Service) Locate(h http.Header, p string) (settings.Account, string, error) {
	a, err := s.settings.Account(settings.RequestUser(h))
	if err != nil {
		return a, "", connect.NewError(connect.CodeUnauthenticated, err)
	}
	abs, err := a.Path(p)
	if err != nil {
		return a, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return a, abs, nil
}

// ConnectError gives an error about the file called name the code that fits.
func ConnectError(name string, err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, err = connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", name)
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		code = connect.CodeAlreadyExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = connect.CodePermissionDenied
	case noSpace(err):
		code = connect.CodeResourceExhausted
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		code = connect.CodeInvalidArgument
	}
	// The wire has no other text, and names may be any.
	return connect.NewError(code, errors.New(strings.ToValidUTF8(err.Error(), "\uFFFD")))
}

// ours are folders that a sandbox cannot do without, or that are no folders of a
// disk at all: they can be neither moved nor removed, only what is in them.
var ours = map[string]bool{"/": true, "/dev": true, "/proc": true, "/run": true, "/sys": true}

// changeable is locate for what is to be moved or removed. An empty path, which
// elsewhere is the home folder, is none here.
func (s *Service) changeable(h http.Header, p string) (settings.Account, string, error) {
	a, name, err := s.Locate(h, p)
	switch {
	case err != nil:
		return a, "", err
	case p == "":
		return a, "", connect.NewError(connect.CodeInvalidArgument, errors.New("the path is empty"))
	case ours[name]:
		return a, "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' can be neither moved nor removed", name))
	}
	return a, name, nil
}

// Stat describes a path; of a symbolic link, the link itself with the type of
// what it leads to.
func (s *Service) Stat(_ context.Context, req *connect.Request[envd.StatRequest]) (*connect.Response[envd.StatResponse], error) {
	_, name, err := s.Locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	st, err := os.Lstat(name)
	if errors.Is(err, syscall.ENOTDIR) { // below a file there is nothing
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, ConnectError(name, err)
	}
	return connect.NewResponse(&envd.StatResponse{Entry: s.Describe(name, st)}), nil
}

// MakeDir makes a folder and the parents that are missing.
func (s *Service) MakeDir(_ context.Context, req *connect.Request[envd.MakeDirRequest]) (*connect.Response[envd.MakeDirResponse], error) {
	a, name, err := s.Locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(name); err == nil {
		if !st.IsDir() {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' exists and is not a directory", name))
		}
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory '%s' already exists", name))
	}
	mode, err := parseMode(req.Header().Get(protocol.HeaderMode))
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err := s.makeDirs(a, name); err != nil {
		return nil, ConnectError(name, err)
	}
	if mode >= 0 {
		if err := syscall.Chmod(name, uint32(mode)); err != nil {
			return nil, ConnectError(name, err)
		}
	}
	st, err := os.Lstat(name)
	if err != nil {
		return nil, ConnectError(name, err)
	}
	return connect.NewResponse(&envd.MakeDirResponse{Entry: s.Describe(name, st)}), nil
}

// Move gives a file or folder another path, with the parents that are missing, and
// replaces a file that is there.
func (s *Service) Move(_ context.Context, req *connect.Request[envd.MoveRequest]) (*connect.Response[envd.MoveResponse], error) {
	_, from, err := s.changeable(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	a, to, err := s.changeable(req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(from); err != nil { // before parents are made
		return nil, ConnectError(from, err)
	}
	if err := s.makeDirs(a, path.Dir(to)); err != nil {
		return nil, ConnectError(to, err)
	}
	// Not the package's Rename, which refuses every folder as destination; Linux
	// lets a folder replace an empty one.
	if err := syscall.Rename(from, to); err != nil {
		if errors.Is(err, syscall.EXDEV) {
			err = connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("'%s' and '%s' are on different file systems: copy it, then remove it", from, to))
			return nil, err
		}
		return nil, ConnectError(from, &os.LinkError{Op: "rename", Old: from, New: to, Err: err})
	}
	st, err := os.Lstat(to)
	if err != nil {
		return nil, ConnectError(to, err)
	}
	return connect.NewResponse(&envd.MoveResponse{Entry: s.Describe(to, st)}), nil
}

// Remove removes a file, or a folder with all that is in it. What is not there is
// no error.
func (s *Service) Remove(_ context.Context, req *connect.Request[envd.RemoveRequest]) (*connect.Response[envd.RemoveResponse], error) {
	_, name, err := s.changeable(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	// Below a file there is nothing, so nothing to remove.
	if err := os.RemoveAll(name); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return nil, ConnectError(name, err)
	}
	return connect.NewResponse(&envd.RemoveResponse{}), nil
}
