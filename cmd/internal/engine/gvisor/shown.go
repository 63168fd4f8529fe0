package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/sentry/platform"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// Annotations of a machine's spec: the processors and the bytes of memory that
// code inside is shown, by which programs size themselves. gVisor shows the limits
// of a cgroup that it made itself, else the host's.
const (
	annotationCPUs   = "cubby.cpus"
	annotationMemory = "cubby.memory"
)

// fixedBy is what a machine that boots with limits is shown, and its disk. A part of
// a processor is shown as a whole one.
func fixedBy(limits engine.Limits) engine.Fixed {
	fixed := engine.Fixed{Disk: limits.Disk, Memory: limits.Memory}
	if limits.CPUs > 0 {
		// Not more than there are: threads beyond them only wait for each other.
		fixed.CPUs = min(int(math.Ceil(limits.CPUs)), runtime.NumCPU())
	}
	return fixed
}

// annotations tell a sentry what it is to show.
func annotations(fixed engine.Fixed) map[string]string {
	shown := map[string]string{}
	if fixed.CPUs > 0 {
		shown[annotationCPUs] = strconv.Itoa(fixed.CPUs)
	}
	if fixed.Memory > 0 {
		shown[annotationMemory] = strconv.FormatInt(fixed.Memory, 10)
	}
	return shown
}

// specFlag is the flag of gVisor's commands that names the descriptor of the spec.
const specFlag = "--spec-fd="

// bootArgs returns the arguments of a sentry with what its spec says is to be
// shown. A sentry executes itself again, and hands on what is there then.
func bootArgs(args []string) ([]string, error) {
	if !slices.Contains(args, "boot") || slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--cpu-num=") }) {
		return args, nil
	}
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, specFlag) })
	if i < 0 {
		return nil, errors.New("boot without " + specFlag)
	}
	fd, err := strconv.Atoi(args[i][len(specFlag):])
	if err != nil {
		return nil, err
	}
	spec, err := readSpec(fd)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	last := len(args) - 1 // the machine's id
	out := slices.Clone(args[:last])
	// Zero means the host's.
	out = append(out, "--cpu-num="+orZero(spec.Annotations[annotationCPUs]))
	if memory := spec.Annotations[annotationMemory]; memory != "" {
		out = append(out, "--total-memory="+memory) // after gVisor's own: the last one counts
	}
	return append(out, args[last]), nil
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// readSpec leaves the descriptor and its offset to gVisor.
func readSpec(fd int) (spec struct {
	Annotations map[string]string `json:"annotations"`
}, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return spec, err
	}
	text := make([]byte, min(st.Size, 1<<20))
	n, err := unix.Pread(fd, text, 0)
	if err != nil {
		return spec, err
	}
	return spec, json.Unmarshal(text[:n], &spec)
}

// showBootArgs changes this process's arguments, and the descriptor that they name for the
// channel, or ends it.
func showBootArgs() {
	args, err := bootArgs(os.Args)
	if err == nil {
		args, err = placeChannel(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cubby: boot:", err)
		os.Exit(128)
	}
	os.Args = args
	if p, err := platform.Lookup(platformName); err == nil {
		platform.Register(platformName, allProcessors{p})
	}
}

// allProcessors is a platform whose kernel runs on every processor that there is.
// gVisor takes the number that is shown for that, too, and then with one processor
// would not let the kernel watch for system calls while code inside runs: they are
// slower so. What a machine may use is bounded by its cgroup.
type allProcessors struct{ platform.Constructor }

// New is called when the kernel has set its number and nothing has looked at it.
func (p allProcessors) New(opts platform.Options) (platform.Platform, error) {
	gomaxprocs.SetBase(runtime.NumCPU())
	return p.Constructor.New(opts)
}
