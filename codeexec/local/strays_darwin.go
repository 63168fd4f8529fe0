package local

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitExit returns when a child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(queue)
	var event unix.Kevent_t
	unix.SetKevent(&event, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ENABLE|unix.EV_ONESHOT)
	event.Fflags = unix.NOTE_EXIT
	for {
		// A child that has ended already is an error (ESRCH).
		_, err := unix.Kevent(queue, []unix.Kevent_t{event}, make([]unix.Kevent_t, 1), nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// folderPath has no counterpart here: the folder's path must do.
func folderPath(*os.File) string { return "" }

type stray struct{}

// strays finds nothing here: what leaves the group gets away.
func strays(int, string) []stray { return nil }

func (stray) kill() {}
