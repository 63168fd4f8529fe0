//go:build linux

package gatewayproc

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// confine takes from this process what it does not need: files, privileges, and system
// calls. It is called before a byte that came out of a sandbox is looked at.
func confine() error {
	if err := emptyRoot(); err != nil {
		return fmt.Errorf("an empty root: %w", err)
	}
	// Nobody else may look into its memory, not even another process of its user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	for _, resource := range []int{unix.RLIMIT_CORE, unix.RLIMIT_FSIZE} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{}); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if err := filter().Install(nil); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// emptyRoot makes an empty folder, on which nothing can be written, this process's
// root. It is in a user namespace and a mount namespace of its own.
func emptyRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const place = "/proc" // there is one everywhere, and it is not needed
	const flags = unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_RDONLY
	if err := unix.Mount("empty", place, "tmpfs", flags, "size=4k,nr_inodes=1,mode=555"); err != nil {
		return err
	}
	if err := unix.Chdir(place); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// dropCapabilities ends every capability of every thread. With no_new_privs, which the
// filter sets, and without execve none comes back.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&none)
	switch {
	case errors.Is(errno, unix.ENOTSUP):
		return errors.New("this program was built with cgo, which the gateway cannot be confined with: build it with CGO_ENABLED=0")
	case errno != 0:
		return errno
	}
	return nil
}

// filter allows what Go's runtime and sockets need, and nothing that opens a file,
// starts a process or makes a socket of another kind. What else is called ends the
// process: the server starts another.
func filter() *seccomp.Program {
	all := seccomp.MatchAll{}
	rules := map[uintptr]seccomp.SyscallRule{}
	for _, nr := range append([]uintptr{
		// Go's runtime: memory, threads, time, signals, the poller.
		unix.SYS_BRK, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_FUTEX, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
		unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETPID, unix.SYS_GETTID,
		unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RESTART_SYSCALL,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_GETRANDOM,
		// Descriptors that are there: the socket to the server, cards, sockets.
		unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_PPOLL,
		unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT,
		unix.SYS_SHUTDOWN, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
		unix.SYS_SPLICE,
	}, ofArchitecture...) {
		rules[nr] = all
	}
	rules[unix.SYS_FCNTL] = seccomp.Or{
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_GETFL)}, seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_SETFL)},
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_GETFD)}, seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_SETFD)},
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_DUPFD_CLOEXEC)},
	}
	// Of all sockets those of IP, and those by which the kernel tells its routes. No
	// raw ones: they would need a capability.
	socket := seccomp.Or{seccomp.PerArg{seccomp.EqualTo(unix.AF_NETLINK), seccomp.AnyValue{}, seccomp.EqualTo(unix.NETLINK_ROUTE)}}
	for _, family := range []uintptr{unix.AF_INET, unix.AF_INET6} {
		for _, kind := range []uintptr{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			socket = append(socket, seccomp.PerArg{seccomp.EqualTo(family), seccomp.MaskedEqual(0xf, kind)})
		}
	}
	rules[unix.SYS_SOCKET] = socket
	// Threads of this process, and signals to them.
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM
	const besides = unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID
	rules[unix.SYS_CLONE] = seccomp.PerArg{seccomp.MaskedEqual(^uintptr(besides), thread)}
	// The runtime gives what it maps a name.
	rules[unix.SYS_PRCTL] = seccomp.PerArg{seccomp.EqualTo(unix.PR_SET_VMA), seccomp.EqualTo(unix.PR_SET_VMA_ANON_NAME)}
	self := uintptr(unix.Getpid())
	rules[unix.SYS_TGKILL] = seccomp.PerArg{seccomp.EqualTo(self)}
	// What libraries look for in files they do without.
	refused := map[uintptr]seccomp.SyscallRule{}
	for _, nr := range []uintptr{unix.SYS_OPENAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, fstatat, unix.SYS_READLINKAT, unix.SYS_UNAME} {
		refused[nr] = all
	}
	return &seccomp.Program{
		RuleSets: []seccomp.RuleSet{
			{Rules: seccomp.MakeSyscallRules(refused), Action: seccomp.ReturnError.Code(uint16(unix.EPERM))},
			{Rules: seccomp.MakeSyscallRules(rules), Action: seccomp.Allow},
		},
		Options: seccomp.ProgramOptions{DefaultAction: seccomp.KillProcess, BadArchAction: seccomp.KillProcess},
	}
}
