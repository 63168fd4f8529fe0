//go:build !windows

package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// isNull reports whether f is /dev/null, which also stands where standard input
// was closed.
func isNull(f *os.File) bool {
	var st, null unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && unix.Stat(os.DevNull, &null) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == null.Rdev
}

// backgroundPoll is how often a program in the background looks whether it has
// come to the foreground.
const backgroundPoll = 200 * time.Millisecond

// keyboard is a terminal's input. A program in the background that reads it would
// be stopped, whether its code wants input or not: `cubby run … &`.
type keyboard struct{ f *os.File }

// Read waits for a line, in the foreground.
func (k keyboard) Read(b []byte) (int, error) {
	fd := int(k.f.Fd())
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err == unix.EINTR {
			continue
		}
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group != unix.Getpgrp() {
			time.Sleep(backgroundPoll)
			continue
		}
		return k.f.Read(b)
	}
}
