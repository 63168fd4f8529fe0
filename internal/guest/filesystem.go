//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cubby-sandbox/cubby/internal/protocol"
	"github.com/cubby-sandbox/cubby/internal/protocol/envd"
	"github.com/cubby-sandbox/cubby/internal/protocol/envd/envdconnect"
)

// maxEntries bounds what one ListDir answers.
const maxEntries = 100_000

// filesystemService is envd's filesystem.Filesystem. What it does not have yet
// answers "unimplemented".
type filesystemService struct {
	envdconnect.UnimplementedFilesystemHandler
	g *Guest
}

// locate returns the user of a call and the path that it means.
func (s *filesystemService) locate(h http.Header, p string) (account, string, error) {
	a, err := s.g.account(requestUser(h))
	if err != nil {
		return a, "", connect.NewError(connect.CodeUnauthenticated, err)
	}
	abs, err := a.path(p)
	if err != nil {
		return a, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return a, abs, nil
}

func connectError(name string, err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, err = connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", name)
	case errors.Is(err, fs.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = connect.CodeResourceExhausted
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		code = connect.CodeInvalidArgument
	}
	return connect.NewError(code, err)
}

// Stat describes a path; of a symbolic link, the link itself with the type of
// what it leads to.
func (s *filesystemService) Stat(_ context.Context, req *connect.Request[envd.StatRequest]) (*connect.Response[envd.StatResponse], error) {
	_, name, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	st, err := os.Lstat(name)
	if err != nil {
		return nil, connectError(name, err)
	}
	return connect.NewResponse(&envd.StatResponse{Entry: s.entry(name, st)}), nil
}

// MakeDir makes a folder and the parents that are missing.
func (s *filesystemService) MakeDir(_ context.Context, req *connect.Request[envd.MakeDirRequest]) (*connect.Response[envd.MakeDirResponse], error) {
	a, name, err := s.locate(req.Header(), req.Msg.GetPath())
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
	if err := s.g.makeDirs(a, name); err != nil {
		return nil, connectError(name, err)
	}
	if mode >= 0 {
		if err := syscall.Chmod(name, uint32(mode)); err != nil {
			return nil, connectError(name, err)
		}
	}
	st, err := os.Lstat(name)
	if err != nil {
		return nil, connectError(name, err)
	}
	return connect.NewResponse(&envd.MakeDirResponse{Entry: s.entry(name, st)}), nil
}

// ListDir lists a folder, each folder before what is in it, down to depth. It
// follows no link below the folder.
func (s *filesystemService) ListDir(ctx context.Context, req *connect.Request[envd.ListDirRequest]) (*connect.Response[envd.ListDirResponse], error) {
	_, name, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, connectError(name, err)
	}
	if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' is not a directory", name))
	}
	resp := &envd.ListDirResponse{}
	if err := s.list(ctx, name, max(1, req.Msg.GetDepth()), resp); err != nil {
		return nil, err
	}
	return connect.NewResponse(resp), nil
}

func (s *filesystemService) list(ctx context.Context, dir string, depth uint32, resp *envd.ListDirResponse) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return connectError(dir, err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		if len(resp.Entries) == maxEntries {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d entries: list a smaller part", maxEntries))
		}
		name := path.Join(dir, e.Name())
		resp.Entries = append(resp.Entries, s.entry(name, st))
		if e.IsDir() && depth > 1 {
			if err := s.list(ctx, name, depth-1, resp); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
				return err
			}
		}
	}
	return nil
}

// entry describes name, which Lstat described as st.
func (s *filesystemService) entry(name string, st fs.FileInfo) *envd.EntryInfo {
	e := &envd.EntryInfo{
		Name:         strings.ToValidUTF8(path.Base(name), "\uFFFD"), // the wire has no other text
		Path:         strings.ToValidUTF8(name, "\uFFFD"),
		Size:         st.Size(),
		Type:         fileType(st.Mode()),
		Permissions:  st.Mode().String(),
		ModifiedTime: timestamppb.New(st.ModTime()),
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.Mode = sys.Mode & 0o7777
		e.Owner = s.ownerName(sys.Uid, s.g.cfg.UID)
		e.Group = s.ownerName(sys.Gid, s.g.cfg.GID)
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(name)
		if err == nil {
			if st, err := os.Stat(target); err == nil {
				e.Type = fileType(st.Mode())
			}
		} else {
			target, _ = os.Readlink(name)
		}
		target = strings.ToValidUTF8(target, "\uFFFD")
		e.SymlinkTarget = &target
	}
	return e
}

func fileType(m fs.FileMode) envd.FileType {
	switch {
	case m.IsRegular():
		return envd.FileType_FILE_TYPE_FILE
	case m.IsDir():
		return envd.FileType_FILE_TYPE_DIRECTORY
	case m&fs.ModeSymlink != 0:
		return envd.FileType_FILE_TYPE_SYMLINK
	}
	return envd.FileType_FILE_TYPE_UNSPECIFIED
}

func (s *filesystemService) ownerName(id, user uint32) string {
	switch id {
	case 0:
		return "root"
	case user:
		return s.g.cfg.UserName
	}
	return strconv.FormatUint(uint64(id), 10)
}
