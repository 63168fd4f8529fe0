package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// limits are those that a plain process can be given for good.
type limits struct {
	memory, fileSize bool
	// prefix takes from root what would let it lift them.
	prefix []string
}

func findLimits() limits {
	l := limits{memory: runtime.GOOS == "linux", fileSize: supported}
	if os.Geteuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			return limits{}
		}
		l.prefix = []string{setpriv, "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource", "--"}
	}
	return l
}

// names are those of the JSON fields.
func (l limits) names() []string {
	var names []string
	if l.memory {
		names = append(names, "memory_bytes")
	}
	if l.fileSize {
		names = append(names, "file_size_bytes")
	}
	return names
}

// check refuses limits that make no sense or would not hold.
func (l limits) check(want codeexec.ResourceLimits) error {
	if want.CPUs < 0 || want.MemoryBytes < 0 || want.MaxPIDs < 0 || want.DiskBytes < 0 || want.FileSizeBytes < 0 {
		return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("a limit is negative")}
	}
	for _, c := range []struct {
		name   string
		refuse bool
	}{
		{"cpus", want.CPUs > 0}, {"memory_bytes", want.MemoryBytes > 0 && !l.memory}, {"max_pids", want.MaxPIDs > 0},
		{"disk_bytes", want.DiskBytes > 0}, {"file_size_bytes", want.FileSizeBytes > 0 && !l.fileSize},
	} {
		if c.refuse {
			return fmt.Errorf("%w: %s", codeexec.ErrLimitNotEnforceable, c.name)
		}
	}
	if want.MemoryBytes > 0 && want.MemoryBytes < 1024 || want.FileSizeBytes > 0 && want.FileSizeBytes < 512 {
		return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("memory_bytes is at least 1024, file_size_bytes at least 512")}
	}
	return nil
}

// exitLimit is what the shell ends with that could not set a limit.
const exitLimit = "125"

// setLimits runs a command with limits: KiB of memory, blocks of 512 bytes for
// each file, open files; 0 sets none.
const setLimits = `[ "$1" = 0 ] || ulimit -v "$1" || exit ` + exitLimit + `
[ "$2" = 0 ] || ulimit -f "$2" || exit ` + exitLimit + `
[ "$3" = 0 ] || ulimit -n "$3" || exit ` + exitLimit + `
shift 3; exec "$@"`

// wrap returns the command that runs argv, whose program is an absolute path,
// under limits that were checked.
func (l limits) wrap(argv []string, want codeexec.ResourceLimits, openFiles int) ([]string, error) {
	memory, blocks, files := want.MemoryBytes/1024, want.FileSizeBytes/512, int64(openFiles)
	if memory == 0 && blocks == 0 && files == 0 {
		return argv, nil
	}
	if openFiles > 0 && !l.fileSize {
		return nil, fmt.Errorf("%w: open files", codeexec.ErrLimitNotEnforceable)
	}
	// A limit of this process that is lower stays: it may not be lifted.
	memory, blocks, files = l.lower(memory, blocks, files)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	wrapped := append([]string(nil), l.prefix...)
	wrapped = append(wrapped, "/bin/sh", "-c", setLimits, "sh", number(memory), number(blocks), number(files))
	return append(wrapped, argv...), nil
}
