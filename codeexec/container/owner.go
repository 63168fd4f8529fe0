package container

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/moby/client"
)

// Labels of every container and image that this package makes.
const (
	labelExecutor = "cubby.executor"
	labelOwner    = "cubby.owner"
)

// owner is this process as others on the same machine can recognise it: the boot
// of the kernel, the namespace that process numbers are of, the number, and the
// time of its start. It is empty where a process cannot be told so.
var owner = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	start, ok := startTime(os.Getpid())
	if !ok {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + ns + "/" + strconv.Itoa(os.Getpid()) + "/" + start
})

// startTime returns when a process was started, in ticks since boot.
func startTime(pid int) (string, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", false
	}
	return fields[19], true
}

// dead reports whether the owner of a label is known to be gone. One of another
// machine, boot or namespace is never: it cannot be seen from here.
func dead(label string) bool {
	me, it := strings.Split(owner(), "/"), strings.Split(label, "/")
	if len(me) != 4 || len(it) != 4 || me[0] != it[0] || me[1] != it[1] {
		return false
	}
	pid, err := strconv.Atoi(it[2])
	if err != nil || pid <= 0 {
		return false
	}
	start, alive := startTime(pid)
	if !alive {
		_, err := os.Stat("/proc/" + it[2])
		return os.IsNotExist(err)
	}
	return start != it[3]
}

// sweep removes containers whose owners are gone. Containers end with the
// connection to their owner by themselves; what is swept are those that were
// never started, and those whose daemon was away at that moment. Its errors do
// not matter to who starts.
func (d *docker) sweep(ctx context.Context) (removed int) {
	found, err := d.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelExecutor)})
	if err != nil {
		return 0
	}
	for _, c := range found.Items {
		if label := c.Labels[labelOwner]; label != "" && dead(label) {
			if _, err := d.api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err == nil {
				removed++
			}
		}
	}
	return removed
}
