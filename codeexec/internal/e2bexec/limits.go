package e2bexec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// sandboxLimits are the limits that a sandbox is asked to be made with.
func sandboxLimits(l codeexec.ResourceLimits) cubby.Limits {
	return cubby.Limits{Memory: l.MemoryBytes, CPUs: l.CPUs, Disk: l.DiskBytes, PIDs: l.MaxPIDs}
}

// held returns the limits that hold for a sandbox. Servers that say nothing of
// limits hold none: what they answer of a machine's size is no promise.
func held(info *cubby.Info) codeexec.ResourceLimits {
	if !info.LimitsKept {
		return codeexec.ResourceLimits{}
	}
	l := codeexec.ResourceLimits{
		CPUs: info.Limits.CPUs, MemoryBytes: info.Limits.Memory, MaxPIDs: info.Limits.PIDs, DiskBytes: info.Limits.Disk,
	}
	for name, field := range map[string]func(){
		"cpu": func() { l.CPUs = 0 }, "memory": func() { l.MemoryBytes = 0 }, "pids": func() { l.MaxPIDs = 0 }, "disk": func() { l.DiskBytes = 0 },
	} {
		if slices.Contains(info.LimitsNotEnforced, name) {
			field()
		}
	}
	// No file is larger than its disk. A smaller bound (RLIMIT_FSIZE) would be
	// undone by sudo, which sandboxes have.
	l.FileSizeBytes = l.DiskBytes
	return l
}

// checkLimits refuses limits that do not hold.
func checkLimits(want, have codeexec.ResourceLimits) error {
	const mib = 1 << 20
	for _, l := range []struct {
		name       string
		want, have float64
	}{
		{"cpus", want.CPUs, have.CPUs},
		{"memory_bytes", roundUp(want.MemoryBytes, mib), float64(have.MemoryBytes)},
		{"max_pids", float64(want.MaxPIDs), float64(have.MaxPIDs)},
		{"disk_bytes", roundUp(want.DiskBytes, mib), float64(have.DiskBytes)},
		{"file_size_bytes", roundUp(want.FileSizeBytes, mib), float64(have.FileSizeBytes)},
	} {
		switch {
		case l.want <= 0:
		case l.have <= 0:
			return fmt.Errorf("%w: %s: the server does not say that it keeps it", codeexec.ErrLimitNotEnforceable, l.name)
		case l.have > l.want:
			return fmt.Errorf("%w: %s of %.0f, where the sandbox has %.0f", codeexec.ErrLimitNotEnforceable, l.name, l.want, l.have)
		}
	}
	return nil
}

// roundUp is what a server makes of a size.
func roundUp(n, unit int64) float64 { return float64((n + unit - 1) / unit * unit) }

// validLimits refuses what no server could make sense of.
func validLimits(l codeexec.ResourceLimits) error {
	if l.CPUs < 0 || l.CPUs != l.CPUs || l.MemoryBytes < 0 || l.MaxPIDs < 0 || l.DiskBytes < 0 || l.FileSizeBytes < 0 {
		return errors.New("a limit is negative")
	}
	return nil
}
