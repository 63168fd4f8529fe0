//go:build linux

package files

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

// Describe describes name, which Lstat described as st: a symbolic link with the type
// and mode of what it leads to, one that leads nowhere as itself.
func (s *Service) Describe(name string, st fs.FileInfo) *envd.EntryInfo {
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
		e.Owner = s.ownerName(sys.Uid, s.settings.Config.UID, "nobody")
		e.Group = s.ownerName(sys.Gid, s.settings.Config.GID, "nogroup")
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
func (s *Service) ownerName(id, user uint32, nobody string) string {
	switch id {
	case 0:
		return "root"
	case user:
		return s.settings.Config.UserName
	case 65534:
		return nobody
	}
	return strconv.FormatUint(uint64(id), 10)
}
