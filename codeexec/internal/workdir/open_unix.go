//go:build unix

package workdir

import "syscall"

// openNonblock keeps a pipe that took a file's place from holding up an open.
const openNonblock = syscall.O_NONBLOCK
