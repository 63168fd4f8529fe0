package container

import (
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// owner is this process as others on the same machine can recognise it until it
// ends: the boot of the kernel, the network namespace, and the name of a socket
// that this process keeps there. The kernel closes the socket with the process.
// Process numbers and start times would not do: they depend on the namespaces of
// who looks. It is empty where there can be no such socket.
var owner = sync.OnceValue(func() string {
	runtime.LockOSThread() // another thread may be in another namespace
	defer runtime.UnlockOSThread()
	place, err := whereabouts()
	if err != nil {
		return ""
	}
	name := "cubby-owner-" + rand.Text()
	// It stays open for as long as the process lives. Nothing is ever read from it;
	// what others send to it the kernel bounds.
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: "@" + name}); err != nil {
		syscall.Close(fd)
		return ""
	}
	return place + "/" + name
})

// whereabouts are the boot and the network namespace of this thread.
func whereabouts() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	ns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + ns, nil
}

// dead reports whether the owner of a label is known to be gone. One of another
// machine, boot or namespace is never: it cannot be seen from here.
func dead(label string) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	place, err := whereabouts()
	if err != nil {
		return false
	}
	name, ok := strings.CutPrefix(label, place+"/")
	if !ok || !strings.HasPrefix(name, "cubby-owner-") || len(name) > 100 {
		return false
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	return errors.Is(syscall.Connect(fd, &syscall.SockaddrUnix{Name: "@" + name}), syscall.ECONNREFUSED)
}
