//go:build linux || darwin

package local

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses a folder in which others could replace what is ours.
func checkOwner(info fs.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner cannot be told")
	case int(s.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case info.Mode()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return errors.New("others can write to it")
	}
	return nil
}
