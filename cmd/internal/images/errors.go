//go:build linux

package images

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ErrNotExist means that there is no image with that id. It is fs.ErrNotExist.
var ErrNotExist = fs.ErrNotExist

// CorruptError means that an image is not what was sealed: nothing of it may be used.
// SetApart keeps it for a human.
type CorruptError struct {
	ID     string
	Reason string // what differs, and of which file
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("image %s is damaged or was changed: %s", e.ID, e.Reason)
}

// KeyError means that an image is encrypted with a key that this store was not given. The
// image itself may be whole: with the right key it can be used.
type KeyError struct {
	ID     string
	Reason string
}

func (e *KeyError) Error() string { return fmt.Sprintf("image %s: %s", e.ID, e.Reason) }

// VersionError means that an image has a form that this version does not know.
type VersionError struct {
	ID      string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("image %s has form %d, and this version reads form %d only: use the version of Cubby that made it",
		e.ID, e.Version, formVersion)
}

// RoomError means that there is no room for an image: nothing was written.
type RoomError struct {
	Where  string // the folder
	Need   int64  // bytes; 0 if it is not known how many would have been enough
	Free   int64  // bytes that are left for images
	Budget int64  // the bound that leaves no more; 0: the file system
}

func (e *RoomError) Error() string {
	bound := "its file system has"
	if e.Budget > 0 {
		bound = fmt.Sprintf("of the %s for all images there are", size(e.Budget))
	}
	if e.Need == 0 {
		return fmt.Sprintf("no room for an image in %s: %s %s left: remove paused sandboxes or snapshots", e.Where, bound, size(e.Free))
	}
	return fmt.Sprintf("no room for an image of %s in %s: %s %s left: remove paused sandboxes or snapshots",
		size(e.Need), e.Where, bound, size(e.Free))
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// full makes a RoomError of the error of a file system that is full.
func full(where string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	free, statErr := freeBytes(where)
	if statErr != nil {
		free = 0
	}
	return errors.Join(&RoomError{Where: where, Free: free}, err)
}
