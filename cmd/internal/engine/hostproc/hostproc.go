// Package hostproc tells engines what /proc says of the processes that they run
// machines in.
package hostproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Process is what one process uses.
type Process struct {
	Anonymous int64         // resident bytes that are of no file and not shared
	CPU       time.Duration // its own, and that of those of its children that have been waited for
	Ended     bool          // it has, and nobody has waited for it
}

// clockTick is USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = time.Second / 100

// Read returns what a process uses. One that is not there is an error.
func Read(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, err
	}
	// The second field may hold spaces and parentheses; it ends at the last ')'.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	statm, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return Process{}, err
	}
	pages := strings.Fields(string(statm))
	if len(fields) < 15 || len(pages) < 3 {
		return Process{}, fmt.Errorf("%s: unexpected form", dir)
	}
	p := Process{Ended: fields[0] == "Z"}
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		p.CPU += time.Duration(n) * clockTick
	}
	resident, _ := strconv.ParseInt(pages[1], 10, 64)
	shared, _ := strconv.ParseInt(pages[2], 10, 64)
	p.Anonymous = (resident - shared) * int64(os.Getpagesize())
	return p, nil
}

// Descendants lists the processes below one, at any depth.
func Descendants(pid int) []int {
	var all []int
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, s := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(s); err == nil {
				all = append(append(all, child), Descendants(child)...)
			}
		}
	}
	return all
}

// Threads lists those of a process; none of one that has ended.
func Threads(pid int) []int {
	var all []int
	tasks, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			all = append(all, tid)
		}
	}
	return all
}
