package gatewayproc

import "golang.org/x/sys/unix"

// ofArchitecture are the older calls that this architecture has besides: none.
var ofArchitecture []uintptr

const fstatat = unix.SYS_FSTATAT
