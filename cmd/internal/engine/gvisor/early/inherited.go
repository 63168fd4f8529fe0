package early

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

func init() {
	if strings.HasPrefix(os.Args[0], "runsc-") {
		closeInherited("/proc/self/fd", donated(os.Args))
	}
}

// donated is the highest descriptor that gVisor handed to this process. They
// begin at 3 without gaps, and the flags "--…-fd=N" and "--…-fds=N,N" name them.
func donated(args []string) int {
	highest := 2
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		if !strings.HasSuffix(name, "-fd") && !strings.HasSuffix(name, "-fds") {
			continue
		}
		for field := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ':' }) {
			if fd, err := strconv.Atoi(field); err == nil {
				highest = max(highest, fd)
			}
		}
	}
	return highest
}

// closeInherited closes what is above highest and came through exec; what this
// process opened itself is close-on-exec. gVisor opens control sockets and takes
// memory files in the process that starts us, without that: one that was opened
// at the moment we were forked is another sandbox's. Its number may be one that a
// sentry needs, too: it puts its standard streams at 253 and refuses to start if
// something is there.
func closeInherited(dir string, highest int) {
	d, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	var names []string
	buf := make([]byte, 4096)
	for {
		n, err := syscall.ReadDirent(d, buf)
		if n <= 0 || err != nil {
			break
		}
		_, _, names = syscall.ParseDirent(buf[:n], -1, names)
	}
	syscall.Close(d)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= highest {
			continue
		}
		if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			syscall.Close(fd)
		}
	}
}
