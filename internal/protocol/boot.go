package protocol

// CgroupVar is the variable of process 1's environment in which an engine says what
// kind of control groups its machines' kernel lets process 1 mount. Without it, or
// with a kind that process 1 does not know, there are none.
const CgroupVar = "CUBBY_CGROUP"

// CgroupV1PIDs is a hierarchy of version 1 with the pids controller.
const CgroupV1PIDs = "v1-pids"
