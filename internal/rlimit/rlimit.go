//go:build linux

// Package rlimit knows how much of the limits that every process inherits
// (getrlimit(2), the shell's ulimit) sandboxes need, and says which one is too
// small. Without it the first sign is a kernel of a sandbox that ends before it
// can say a word.
package rlimit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// need is what one sandbox takes of a limit.
type need struct {
	resource int
	name     string
	least    uint64
	of       string // what is counted; for bytes, what they are of
	flag     string // of ulimit
	unit     uint64 // of ulimit
	advise   uint64 // a value that is enough for more than one sandbox
	why      string // what happens without it, where that is no plain failure
	// service is the setting of systemd, and docker the name for `docker run
	// --ulimit`; empty where it has none.
	service, docker string
	// used tells how much is taken already, by whatever else counts against the
	// same limit; nil means that every process has a limit of its own.
	used func(limit uint64) uint64
}

const mib, gib = 1 << 20, 1 << 30

// Descriptors that a server needs.
const (
	// leastDescriptors is what one sandbox's kernel needs: it has some 80 itself and
	// up to three for each file that code has open or mapped, which with pandas,
	// SciPy and matplotlib are 300 in all.
	leastDescriptors = 512
	// baseDescriptors are the server's own: records, listeners, the process's
	// standard streams, and connections of clients that have no sandbox.
	baseDescriptors = 128
	// sandboxDescriptors are those of one sandbox in the server: seven while it
	// idles, and connections of its clients.
	sandboxDescriptors = 16
)

// needs were measured: each limit was lowered until a sandbox did not start, or
// pandas did not load in it.
var needs = []need{
	{
		resource: unix.RLIMIT_NOFILE, name: "RLIMIT_NOFILE", least: leastDescriptors, of: "open files",
		flag: "-n", unit: 1, advise: 4096, service: "LimitNOFILE", docker: "nofile",
	},
	{
		resource: unix.RLIMIT_NPROC, name: "RLIMIT_NPROC", least: 64, of: "processes and threads of this user",
		flag: "-u", unit: 1, advise: 4096, service: "LimitNPROC", docker: "nproc", used: threads,
	},
	{
		// Go runs a system call in all threads by sending each a real-time signal,
		// which cannot be sent when it cannot wait, and tries again until it could.
		resource: unix.RLIMIT_SIGPENDING, name: "RLIMIT_SIGPENDING", least: 32, of: "waiting signals of this user",
		why:  "without, its start never ends: its kernel gives up its privileges in all threads by signals",
		flag: "-i", unit: 1, advise: 4096, service: "LimitSIGPENDING", docker: "sigpending", used: pending,
	},
	{
		resource: unix.RLIMIT_AS, name: "RLIMIT_AS", least: 6 * gib, of: "of address space",
		flag: "-v", unit: 1 << 10, advise: 64 * gib, service: "LimitAS",
	},
	{
		resource: unix.RLIMIT_DATA, name: "RLIMIT_DATA", least: 512 * mib, of: "of private memory",
		flag: "-d", unit: 1 << 10, advise: 8 * gib, service: "LimitDATA", docker: "data",
	},
	{
		resource: unix.RLIMIT_FSIZE, name: "RLIMIT_FSIZE", least: 8 * gib, of: "in one file",
		why:  "its memory and its disk are files",
		flag: "-f", unit: 1 << 10, advise: 64 * gib, service: "LimitFSIZE", docker: "fsize",
	},
}

// Check says which limit is too small for a sandbox: an *Error, or nil. It goes
// by the hard limits, to which Raise lifts the soft ones.
func Check() error {
	for _, n := range needs {
		limit, ok := get(n.resource)
		if !ok || limit.Max == unix.RLIM_INFINITY {
			continue
		}
		if err := n.check(limit.Max); err != nil {
			return err
		}
	}
	return nil
}

// Explain says which limit is too small as it stands for a process of this user
// that has failed to start, or nil if none is.
func Explain() error {
	for _, n := range needs {
		limit, ok := get(n.resource)
		if !ok || limit.Cur == unix.RLIM_INFINITY {
			continue
		}
		if n.resource == unix.RLIMIT_NOFILE {
			n.used = descriptors // those of this process, which starts the others
			n.least = 32
			if limit.Cur < leastDescriptors {
				n.least = leastDescriptors
			}
		}
		if err := n.check(limit.Cur); err != nil {
			return err
		}
	}
	return nil
}

func (n need) check(limit uint64) error {
	var used uint64
	// Counting takes time, and matters only where the limit is near.
	if n.used != nil && limit < 16<<10 {
		used = n.used(limit)
	}
	if limit >= used+n.least {
		return nil
	}
	taken := ""
	if used > 0 {
		taken = fmt.Sprintf(", of which %d are taken", used)
	}
	why := ""
	if n.why != "" {
		why = " (" + n.why + ")"
	}
	return &fault.Error{
		Code: fault.Unavailable,
		Err: fmt.Errorf("at most %s %s are allowed here (%s)%s; a sandbox needs %s%s",
			n.show(limit), n.of, n.name, taken, n.show(n.least), why),
		Hint: n.remedy(max(n.advise, 2*(used+n.least))),
	}
}

// show writes a value for people.
func (n need) show(value uint64) string {
	if n.unit == 1 {
		return strconv.FormatUint(value, 10)
	}
	if value < mib {
		return strconv.FormatUint(value>>10, 10) + " KiB"
	}
	return strconv.FormatUint(value/mib, 10) + " MiB"
}

// remedy says how to set the limit to at least value.
func (n need) remedy(value uint64) string {
	shell := fmt.Sprintf("raise it: `ulimit %s %d` in the shell that starts it", n.flag, value/n.unit)
	if n.unit > 1 {
		shell = fmt.Sprintf("raise it: `ulimit %s unlimited` in the shell that starts it", n.flag)
	}
	places := []string{fmt.Sprintf("%s=%d for a systemd service", n.service, value)}
	if n.docker != "" {
		places = append(places, fmt.Sprintf("--ulimit %s=%d for docker run", n.docker, value))
	}
	return shell + " (root may always, and sets it for others in /etc/security/limits.conf), " + strings.Join(places, ", ")
}

// MostSandboxes is how many sandboxes a server has descriptors for; it may be
// none. It goes by the hard limit.
func MostSandboxes() int {
	limit, ok := get(unix.RLIMIT_NOFILE)
	if !ok || limit.Max > 1<<30 {
		limit.Max = 1 << 30
	}
	return mostSandboxes(limit.Max)
}

func mostSandboxes(descriptors uint64) int {
	if descriptors < leastDescriptors {
		return 0
	}
	return int((descriptors - baseDescriptors) / sandboxDescriptors)
}

// CheckSandboxes says whether a server has the descriptors for so many sandboxes:
// nil or a *fault.Error.
func CheckSandboxes(count int) error {
	if count <= MostSandboxes() {
		return nil
	}
	n := needs[0]
	limit, _ := get(n.resource)
	value := uint64(count)*sandboxDescriptors + baseDescriptors
	return &fault.Error{
		Code: fault.Unavailable,
		Err:  fmt.Errorf("at most %d %s are allowed here (%s); %d sandboxes need %d", limit.Max, n.of, n.name, count, value),
		Hint: n.remedy(value) + fmt.Sprintf("; or serve at most %d sandboxes (--max-sandboxes)", MostSandboxes()),
	}
}

// Raise lifts this process's soft limits to its hard ones, which every process
// may. It is for a process that starts sandboxes, not for one that embeds them:
// soft limits are a program's own business.
func Raise() error {
	var errs []error
	for _, n := range needs {
		limit, ok := get(n.resource)
		if !ok || limit.Cur == limit.Max {
			continue
		}
		limit.Cur = limit.Max
		if err := unix.Setrlimit(n.resource, &limit); err != nil {
			errs = append(errs, fmt.Errorf("raise %s: %w", n.name, err))
		}
	}
	return errors.Join(errs...)
}

func get(resource int) (unix.Rlimit, bool) {
	var limit unix.Rlimit
	err := unix.Getrlimit(resource, &limit)
	return limit, err == nil
}

// threads counts this user's processes and threads, as far as they can be seen.
// Root's are not bounded, but the users that its sandboxes run as are, and those
// have none yet.
func threads(limit uint64) uint64 {
	uid := os.Getuid()
	if uid == 0 && initialNamespace() {
		return 0
	}
	var total uint64
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		info, err := os.Lstat(proc)
		if err != nil {
			continue // it ended just now
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) == uid {
			total += max(field(proc+"/status", "Threads:"), 1)
		}
	}
	return min(total, limit)
}

// initialNamespace reports whether uid 0 here is the machine's.
func initialNamespace() bool {
	uids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(uids)), []string{"0", "0", "4294967295"})
}

// pending counts this user's waiting signals.
func pending(uint64) uint64 { return field("/proc/self/status", "SigQ:") }

// descriptors counts those of this process.
func descriptors(limit uint64) uint64 {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return limit // there is none left to look with
	}
	return uint64(len(open))
}

// field reads the first number after name in a file of /proc; 0 if there is none.
func field(path, name string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			number, _, _ := strings.Cut(strings.TrimSpace(rest), "/")
			n, _ := strconv.ParseUint(number, 10, 64)
			return n
		}
	}
	return 0
}
