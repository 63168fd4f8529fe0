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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// What one ListDir answers is bounded: in entries, and in bytes of the messages.
const (
	maxEntries   = 100_000
	maxListBytes = 32 << 20
)

// filesystemService is envd's filesystem.Filesystem.
type filesystemService struct {
	g *Guest
}

var _ envdconnect.FilesystemHandler = (*filesystemService)(nil)

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

// connectError gives an error about the file called name the code that fits.
func connectError(name string, err error) error {
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
func (s *filesystemService) changeable(h http.Header, p string) (account, string, error) {
	a, name, err := s.locate(h, p)
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
func (s *filesystemService) Stat(_ context.Context, req *connect.Request[envd.StatRequest]) (*connect.Response[envd.StatResponse], error) {
	_, name, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	st, err := os.Lstat(name)
	if errors.Is(err, syscall.ENOTDIR) { // below a file there is nothing
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, connectError(name, err)
	}
	return connect.NewResponse(&envd.StatResponse{Entry: s.g.entry(name, st)}), nil
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
	return connect.NewResponse(&envd.MakeDirResponse{Entry: s.g.entry(name, st)}), nil
}

// Move gives a file or folder another path, with the parents that are missing, and
// replaces a file that is there.
func (s *filesystemService) Move(_ context.Context, req *connect.Request[envd.MoveRequest]) (*connect.Response[envd.MoveResponse], error) {
	_, from, err := s.changeable(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	a, to, err := s.changeable(req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(from); err != nil { // before parents are made
		return nil, connectError(from, err)
	}
	if err := s.g.makeDirs(a, path.Dir(to)); err != nil {
		return nil, connectError(to, err)
	}
	// Not the package's Rename, which refuses every folder as destination; Linux
	// lets a folder replace an empty one.
	if err := syscall.Rename(from, to); err != nil {
		if errors.Is(err, syscall.EXDEV) {
			err = connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("'%s' and '%s' are on different file systems: copy it, then remove it", from, to))
			return nil, err
		}
		return nil, connectError(from, &os.LinkError{Op: "rename", Old: from, New: to, Err: err})
	}
	st, err := os.Lstat(to)
	if err != nil {
		return nil, connectError(to, err)
	}
	return connect.NewResponse(&envd.MoveResponse{Entry: s.g.entry(to, st)}), nil
}

// Remove removes a file, or a folder with all that is in it. What is not there is
// no error.
func (s *filesystemService) Remove(_ context.Context, req *connect.Request[envd.RemoveRequest]) (*connect.Response[envd.RemoveResponse], error) {
	_, name, err := s.changeable(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	// Below a file there is nothing, so nothing to remove.
	if err := os.RemoveAll(name); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return nil, connectError(name, err)
	}
	return connect.NewResponse(&envd.RemoveResponse{}), nil
}

// ListDir lists a folder, each folder before what is in it, down to depth. It
// follows no link below the folder. Folders below that cannot be read are listed
// without what is in them: whoever wants to know why lists them.
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
	l := listing{g: s.g, ctx: ctx}
	for header, n := range map[string]*int{protocol.HeaderListSkip: &l.skip, protocol.HeaderListMax: &l.max} {
		if v := req.Header().Get(header); v != "" {
			if *n, err = strconv.Atoi(v); err != nil || *n < 0 {
				return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: %q is no number", header, v))
			}
		}
	}
	if err := l.dir(name, max(1, req.Msg.GetDepth())); err != nil && !errors.Is(err, errPageFull) {
		return nil, err
	}
	return connect.NewResponse(&envd.ListDirResponse{Entries: l.entries}), nil
}

// listing is one ListDir under way.
type listing struct {
	g       *Guest
	ctx     context.Context
	skip    int // entries that come before the page
	max     int // entries of the page; 0 is no page
	entries []*envd.EntryInfo
	bytes   int
}

var errPageFull = errors.New("the page is full")

func (l *listing) dir(dir string, depth uint32) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return connectError(dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if err := l.add(name, e); err != nil {
			return err
		}
		if !e.IsDir() || depth <= 1 {
			continue
		}
		if err := l.dir(name, depth-1); err != nil && !skippable(name, err) {
			return err
		}
	}
	return nil
}

// add lists an entry, unless it belongs to an earlier page.
func (l *listing) add(name string, e fs.DirEntry) error {
	switch {
	case l.skip > 0:
		l.skip--
		return nil
	case l.max > 0 && len(l.entries) == l.max:
		return errPageFull
	}
	st, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone meanwhile
	}
	entry := &envd.EntryInfo{Name: strings.ToValidUTF8(e.Name(), "\uFFFD"), Path: strings.ToValidUTF8(name, "\uFFFD"), Type: fileType(e.Type())}
	if err == nil { // else the folder tells names and nothing more
		entry = l.g.entry(name, st)
	}
	l.bytes += proto.Size(entry)
	if len(l.entries) == maxEntries || l.bytes > maxListBytes {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("more than %d entries or %d MiB of them: list a smaller part", maxEntries, maxListBytes>>20))
	}
	l.entries = append(l.entries, entry)
	return nil
}

// skippable says whether a listing goes on after an error about a folder below:
// one that is gone meanwhile has nothing in it, one that may not be read shows
// nothing, one whose path is longer than a path can be cannot be named.
func skippable(name string, err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeNotFound, connect.CodePermissionDenied:
		return true
	}
	return len(name) >= maxPath
}

// entry describes name, which Lstat described as st: a symbolic link with the type
// and mode of what it leads to, one that leads nowhere as itself.
func (g *Guest) entry(name string, st fs.FileInfo) *envd.EntryInfo {
	e := &envd.EntryInfo{
		Name:         strings.ToValidUTF8(path.Base(name), "\uFFFD"), // the wire has no other text
		Path:         strings.ToValidUTF8(name, "\uFFFD"),
		Size:         st.Size(),
		Mode:         uint32(st.Mode().Perm()),
		Type:         fileType(st.Mode()),
		Permissions:  st.Mode().String(),
		ModifiedTime: timestamppb.New(st.ModTime()),
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.Owner = g.ownerName(sys.Uid, g.cfg.UID, "nobody")
		e.Group = g.ownerName(sys.Gid, g.cfg.GID, "nogroup")
	}
	if st.Mode()&fs.ModeSymlink == 0 {
		e.Metadata = readMetadata(name)
		return e
	}
	target, err := filepath.EvalSymlinks(name)
	if err == nil {
		if st, err := os.Stat(target); err == nil {
			e.Type, e.Mode = fileType(st.Mode()), uint32(st.Mode().Perm())
		}
	} else {
		target, _ = os.Readlink(name)
	}
	target = strings.ToValidUTF8(target, "\uFFFD")
	e.SymlinkTarget = &target
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

// ownerName names the users and groups that a sandbox has. What its template
// shows of the host belongs to nobody in it.
func (g *Guest) ownerName(id, user uint32, nobody string) string {
	switch id {
	case 0:
		return "root"
	case user:
		return g.cfg.UserName
	case 65534:
		return nobody
	}
	return strconv.FormatUint(uint64(id), 10)
}
