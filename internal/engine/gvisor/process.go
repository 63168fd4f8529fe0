package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is what /proc says of one of the host's processes.
type process struct {
	anonymous int64 // resident bytes that are not of a file, and not of the machine's memory file
	cpu       time.Duration
}

// clockTick is USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = time.Second / 100

func readProcess(pid int) (process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, err
	}
	// The second field may hold spaces and parentheses; it ends at the last ')'.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	statm, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return process{}, err
	}
	pages := strings.Fields(string(statm))
	if len(fields) < 15 || len(pages) < 3 {
		return process{}, fmt.Errorf("%s: unexpected form", dir)
	}
	var p process
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		p.cpu += time.Duration(n) * clockTick
	}
	resident, _ := strconv.ParseInt(pages[1], 10, 64)
	shared, _ := strconv.ParseInt(pages[2], 10, 64)
	p.anonymous = (resident - shared) * int64(os.Getpagesize())
	return p, nil
}
