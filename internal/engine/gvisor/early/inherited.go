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

// closeInherited closes the sockets and memory files above highest. gVisor opens
// control sockets and takes memory files in the process that starts us, without
// close-on-exec: one that was opened at the moment we were forked is another
// sandbox's. The Go runtime has neither.
func closeInherited(dir string, highest int) {
	d, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	var fds []string
	buf := make([]byte, 4096)
	for {
		n, err := syscall.ReadDirent(d, buf)
		if n <= 0 || err != nil {
			break
		}
		_, _, fds = syscall.ParseDirent(buf[:n], -1, fds)
	}
	syscall.Close(d)
	link := make([]byte, 64)
	for _, name := range fds {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= highest {
			continue
		}
		n, err := syscall.Readlink(dir+"/"+name, link)
		if err == nil && (strings.HasPrefix(string(link[:n]), "socket:") || strings.HasPrefix(string(link[:n]), "/memfd:")) {
			syscall.Close(fd)
		}
	}
}
