package gatewayproc

import "golang.org/x/sys/unix"

// ofArchitecture are the older calls that this architecture has besides.
var ofArchitecture = []uintptr{unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL, unix.SYS_POLL, unix.SYS_TIME}

const fstatat = unix.SYS_NEWFSTATAT
