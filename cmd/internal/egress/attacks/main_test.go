//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownNetVar says that this process is in a network namespace of its own.
const ownNetVar = "CUBBY_TEST_OWN_NET"

// addresses are those of the machine besides the usual loopback.
var addresses = []string{outside, "93.184.216.34", "10.0.0.1", "192.168.7.7", "169.254.169.254", "169.254.1.1", "100.64.0.1"}

// TestMain runs the tests in a network namespace: there the machine has the addresses
// that they want, and everybody may listen on port 80.
func TestMain(m *testing.M) {
	if os.Getenv(ownNetVar) == "" {
		again()
	}
	os.Unsetenv(ownNetVar)
	if err := configure(); err != nil {
		fmt.Fprintln(os.Stderr, "a network for tests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// again starts this program in its namespace, and ends with it.
func again() {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), ownNetVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "a network namespace for tests:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// configure gives the loopback interface its addresses, and lets every process listen
// on every port.
func configure() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := interfaceFlags(fd, unix.IFF_UP|unix.IFF_RUNNING); err != nil {
		return err
	}
	for i, a := range addresses {
		label := fmt.Sprintf("lo:%d", i)
		if err := interfaceAddr(fd, unix.SIOCSIFADDR, label, netip.MustParseAddr(a)); err != nil {
			return err
		}
		if err := interfaceAddr(fd, unix.SIOCSIFNETMASK, label, netip.AddrFrom4([4]byte{255, 255, 255, 255})); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		return nil
	}
	// What is started here is a plain user's.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); errno != 0 {
		return errno
	}
	return nil
}

// request is the kernel's struct ifreq.
type request struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

func interfaceFlags(fd int, flags uint16) error {
	r := request{}
	copy(r.name[:], "lo")
	*(*uint16)(unsafe.Pointer(&r.data)) = flags
	return interfaceDo(fd, unix.SIOCSIFFLAGS, &r)
}

func interfaceAddr(fd int, op uintptr, label string, a netip.Addr) error {
	r := request{}
	copy(r.name[:], label)
	*(*unix.RawSockaddrInet4)(unsafe.Pointer(&r.data)) = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.As4()}
	return interfaceDo(fd, op, &r)
}

func interfaceDo(fd int, op uintptr, r *request) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), op, uintptr(unsafe.Pointer(r))); errno != 0 {
		return errno
	}
	return nil
}
