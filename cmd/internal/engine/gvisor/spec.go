package gvisor

import (
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/hostuser"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// channelFD is the descriptor on which the guest finds its channel to the host.
const channelFD = 3

// Sizes of the memory-backed file systems inside. What they hold counts as the
// machine's memory.
const (
	shmSize = 64 << 20
	runSize = 32 << 20
)

// capabilities is what uid 0 may do inside. gVisor's kernel grants them over
// its own objects only; on the host they hold in the machine's empty user
// namespace.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// firstProcess is what only the guest may do besides: mount its cgroups, go
// beyond the limits that it sets, and be read by nobody.
var firstProcess = []string{"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"}

// ociSpec describes a machine to gVisor. Its host user is nil without root: then
// the whole server is in a user namespace already, and gVisor nests one more.
func ociSpec(spec engine.Spec, fixed engine.Fixed, user *hostuser.User) *specs.Spec {
	hostname := spec.Hostname
	if hostname == "" {
		hostname = spec.ID
	}
	tmpfs := func(dest, options string, size int) specs.Mount {
		return specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", options, fmt.Sprintf("size=%d", size)}}
	}
	oci := &specs.Spec{
		Version:  "1.0.2",
		Hostname: hostname,
		Root:     &specs.Root{Path: spec.Root},
		// What the limits are, for those who size themselves by them.
		Annotations: annotations(fixed),
		Process: &specs.Process{
			Args: spec.Args,
			Env:  environment(spec.Env),
			Cwd:  "/",
			// gVisor makes the first process's own from the bounding and the
			// inheritable ones; the guest empties the latter for what it starts.
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Inheritable: firstProcess,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: 16384, Hard: 16384},
				{Type: "RLIMIT_CORE"},
			},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
			tmpfs("/dev/shm", "mode=1777", shmSize),
			tmpfs("/run", "mode=0755", runSize),
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
		}},
	}
	if fixed.Disk > 0 {
		oci.Process.Rlimits = append(oci.Process.Rlimits,
			specs.POSIXRlimit{Type: "RLIMIT_FSIZE", Soft: uint64(fixed.Disk), Hard: uint64(fixed.Disk)})
	}
	if user != nil {
		// Whoever breaks out of a machine is a user that owns nothing, not even
		// another machine.
		id := specs.LinuxIDMapping{HostID: user.ID(), Size: 1}
		oci.Linux.Namespaces = append(oci.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		oci.Linux.UIDMappings = []specs.LinuxIDMapping{id}
		oci.Linux.GIDMappings = []specs.LinuxIDMapping{id}
	}
	return oci
}

// environment is that of the first process. gVisor's kernel has control groups of
// version 1, of which pids is the controller that costs nothing.
func environment(env []string) []string {
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, protocol.CgroupVar+"=") }) {
		return env
	}
	return append(slices.Clone(env), protocol.CgroupVar+"="+protocol.CgroupV1PIDs)
}
