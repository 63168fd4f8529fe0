//go:build linux

// Package procfs reads processes from /proc.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ChildrenOf lists the processes whose parent is pid.
func ChildrenOf(pid int) []int {
	var pids []int
	for _, p := range Processes() {
		if p.PPID == pid {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// Process is one line of /proc.
type Process struct {
	PID, PPID, Session int
	Name               string
	Zombie             bool
	Started            uint64 // clock ticks after boot
	RSS                int64  // bytes
}

// Processes lists what /proc shows; what ends meanwhile is left out.
func Processes() []Process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Read describes the process pid.
func Read(pid int) (Process, error) {
	p := Process{PID: pid}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	// The name is in parentheses and may hold anything, ")" too.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return p, fmt.Errorf("stat of %d: %q", pid, b)
	}
	p.Name = string(b[open+1 : end])
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 22 {
		return p, fmt.Errorf("stat of %d: %q", pid, b)
	}
	p.Zombie = f[0] == "Z" || f[0] == "X"
	p.PPID, _ = strconv.Atoi(f[1])
	p.Session, _ = strconv.Atoi(f[3])
	p.Started, _ = strconv.ParseUint(f[19], 10, 64)
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	p.RSS = pages * int64(os.Getpagesize())
	return p, nil
}
