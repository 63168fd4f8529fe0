package main

import (
	"github.com/spf13/pflag"

	"github.com/cubby-sandbox/cubby"
)

// What a sandbox may be asked for.
const (
	minMemory, maxMemory = 16 << 20, 1 << 40 // bytes
	minDisk, maxDisk     = 1 << 20, 1 << 44  // bytes
	minCPUs, maxCPUs     = 0.01, 1024
	minPIDs, maxPIDs     = 8, 1 << 16
)

// limitFlags are the flags of a new sandbox's limits.
type limitFlags struct {
	memory, disk bytesValue
	cpus         float64
	pids         int
}

func defaultLimits() limitFlags { return limitFlags{memory: 512 << 20, disk: 1 << 30} }

func (f *limitFlags) register(fl *pflag.FlagSet) {
	fl.Var(&f.memory, "memory", "memory of the sandbox")
	fl.Float64Var(&f.cpus, "cpus", 1, "processors of the sandbox")
	fl.Var(&f.disk, "disk", "what the code may write")
	fl.IntVar(&f.pids, "pids", 256, "processes and threads")
}

// check refuses what no server would grant.
func (f *limitFlags) check(changed func(string) bool) error {
	for _, s := range []struct {
		flag     string
		v        bytesValue
		min, max bytesValue
	}{
		{"memory", f.memory, minMemory, maxMemory},
		{"disk", f.disk, minDisk, maxDisk},
	} {
		switch {
		case !changed(s.flag):
		case s.v < s.min:
			return usagef("--%s: %s is too little: at least %s", s.flag, s.v.Long(), s.min.Long())
		case s.v > s.max:
			return usagef("--%s: %s is too much: at most %s", s.flag, s.v.Long(), s.max.Long())
		}
	}
	switch {
	case changed("cpus") && !(f.cpus > 0): // also what is no number
		return usagef("--cpus: %v is not more than 0", f.cpus)
	case changed("cpus") && (f.cpus < minCPUs || f.cpus > maxCPUs):
		return usagef("--cpus: %v is not between %v and %v", f.cpus, minCPUs, maxCPUs)
	case changed("pids") && (f.pids < minPIDs || f.pids > maxPIDs):
		return usagef("--pids: %d is not between %d and %d", f.pids, minPIDs, maxPIDs)
	}
	return nil
}

// asked are the limits that were asked for. A default is the server's to set: it may not
// hold there, and is reported then. What was asked for must hold or is refused.
func (f *limitFlags) asked(changed func(string) bool) cubby.Limits {
	var l cubby.Limits
	if changed("memory") {
		l.Memory = int64(f.memory)
	}
	if changed("disk") {
		l.Disk = int64(f.disk)
	}
	if changed("cpus") {
		l.CPUs = f.cpus
	}
	if changed("pids") {
		l.PIDs = f.pids
	}
	return l
}
