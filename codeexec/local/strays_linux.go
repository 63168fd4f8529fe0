package local

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// awaitExit returns when a child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// folderPath is how a child reaches a folder that is open here: its own copy of
// the descriptor is closed when it executes its program, after it went there.
func folderPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// stray is a process that is to be ended.
type stray struct {
	pid   int
	began string
}

// status is what /proc says of a process.
type status struct {
	parent, group, session int
	began                  string // in clock ticks since the boot
	dead                   bool
}

// strays returns the live processes that belong to the session leader: in its
// group or session, below it, or with its mark among their variables.
func strays(leader int, mark string) []stray {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // what was read before an error counts
	first, ok := readStatus(leader)
	if !ok {
		return nil
	}
	all := map[int]status{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 {
			continue
		}
		if s, ok := readStatus(pid); ok {
			all[pid] = s
		}
	}
	entry := []byte("\x00" + mark + "\x00")
	var found []stray
	for pid, s := range all {
		if pid == leader || s.dead || older(s.began, first.began) {
			continue
		}
		if s.group == leader || s.session == leader || below(all, pid, leader) || marked(pid, entry) {
			found = append(found, stray{pid, s.began})
		}
	}
	return found
}

// older compares two numbers as /proc writes them.
func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

func below(all map[int]status, pid, leader int) bool {
	for range len(all) {
		s, ok := all[pid]
		if !ok {
			return false
		}
		if s.parent == leader {
			return true
		}
		pid = s.parent
	}
	return false
}

func marked(pid int, entry []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, env...), entry)
}

func readStatus(pid int) (status, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return status{}, false
	}
	return parseStatus(b)
}

func parseStatus(b []byte) (status, bool) {
	// The name is the process's own choice: it stands in parentheses and may hold
	// some.
	at := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[at+1:]))
	if at < 0 || len(f) < 20 {
		return status{}, false
	}
	s := status{dead: f[0] == "Z" || f[0] == "X", began: f[19]}
	s.parent, _ = strconv.Atoi(f[1])
	s.group, _ = strconv.Atoi(f[2])
	s.session, _ = strconv.Atoi(f[3])
	return s, true
}

// kill ends it. Its number may be another's by now: the process is opened first,
// and then looked at again.
func (s stray) kill() {
	p, err := os.FindProcess(s.pid)
	if err != nil {
		return
	}
	defer func() { _ = p.Release() }()
	if now, ok := readStatus(s.pid); ok && now.began == s.began {
		_ = p.Kill() // it may have ended by itself
	}
}
