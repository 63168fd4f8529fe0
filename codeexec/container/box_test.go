package container

import (
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
)

// A bound that the daemon's kernel does not hold is no bound.
func TestUnheldLimits(t *testing.T) {
	for warning, want := range map[string]bool{
		"Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.":                    true,
		"Your kernel does not support PIDs limit capabilities or the cgroup is not mounted. PIDs limit discarded.":                      true,
		"Your kernel does not support CPU cfs quota or the cgroup is not mounted. Quota discarded.":                                     true,
		"Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.":               false,
		"Your kernel does not support memory swappiness capabilities or the cgroup is not mounted. Memory swappiness discarded.":        false,
		"The requested image's platform (linux/arm64) does not match the detected host platform and no specific platform was requested": false,
	} {
		if got := unheld(warning) != ""; got != want {
			t.Errorf("%v: %s", got, warning)
		}
	}
}

// The defaults are closed; each field opens what it says and nothing else.
func TestSettings(t *testing.T) {
	of := func(cfg Config) (*container.Config, *container.HostConfig) {
		t.Helper()
		cfg.Image = "x"
		cfg, err := cfg.resolve()
		if err != nil {
			t.Fatal(err)
		}
		c, h, err := settings(cfg, "x")
		if err != nil {
			t.Fatal(err)
		}
		return c, h
	}
	c, h := of(Config{})
	if c.User != "1000:1000" || !c.OpenStdin || !c.StdinOnce || c.Tty || h.NetworkMode != "none" || !h.ReadonlyRootfs || h.Privileged || !h.AutoRemove ||
		!slices.Equal(h.CapDrop, []string{"ALL"}) || h.CapAdd != nil || !slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}) ||
		h.PidMode != "" || h.IpcMode != "private" || h.UsernsMode != "" || h.Binds != nil || h.Mounts != nil || h.Devices != nil || h.DeviceRequests != nil ||
		h.Memory != h.MemorySwap || h.Memory <= 0 || h.NanoCPUs <= 0 || *h.PidsLimit <= 0 || h.LogConfig.Type != "none" {
		t.Errorf("got %+v, %+v", c, h)
	}
	if tmp := h.Tmpfs["/tmp"]; len(h.Tmpfs) != 2 || !strings.Contains(tmp, "size=268435456,") || !strings.Contains(tmp, "nosuid") || !strings.Contains(tmp, "nodev") ||
		!strings.Contains(tmp, "nr_inodes=65536") || !strings.HasSuffix(tmp, "uid=1000,gid=1000") {
		t.Errorf("got %v", h.Tmpfs)
	}
	if shm := h.Tmpfs["/dev/shm"]; shm != "rw,nosuid,nodev,noexec,mode=1777,size=67108864,nr_inodes=4096" {
		t.Errorf("got %v", h.Tmpfs)
	}
	c, h = of(Config{
		Network: "bridge", GPUs: "all", Binds: []string{"/a:/b"}, Runtime: "runsc", User: "me",
		Customize: func(c *container.Config, h *container.HostConfig) { c.Hostname, h.ReadonlyRootfs = "h", false },
	})
	if c.User != "me" || h.NetworkMode != "bridge" || len(h.DeviceRequests) != 1 || h.Binds[0] != "/a:/b" ||
		h.Runtime != "runsc" || c.Hostname != "h" || h.ReadonlyRootfs ||
		strings.Contains(h.Tmpfs["/tmp"], "uid=") || !slices.Equal(h.CapDrop, []string{"ALL"}) {
		t.Errorf("got %+v, %+v", c, h)
	}
}

func TestFindHost(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://env:1")
	for in, want := range map[string]string{
		"": "tcp://env:1", "unix:///x.sock": "unix:///x.sock", "tcp://h:2376": "tcp://h:2376", "http://h:2375": "tcp://h:2375",
		"https://h:2376": "tcp://h:2376 secure", "npipe:////./pipe/docker_engine": "npipe:////./pipe/docker_engine",
		"h:2376": "error", "ftp://h": "error", "ssh://h": "error", "tcp://": "error", "\x00": "error",
	} {
		got, secure, err := findHost(in)
		if secure {
			got += " secure"
		}
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %q (%v), want %q", in, got, err, want)
		}
	}
}

// The agent tidies up what is the container's own, and nothing that is shared.
func TestOwn(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"by default", Config{}, "ipc /dev/shm /dev/mqueue"},
		{"folders elsewhere are bound", Config{Binds: []string{"/dev2:/data", "/dev/../x:/y"}}, "ipc /dev/shm /dev/mqueue"},
		{"shared memory is bound", Config{Binds: []string{"/dev/shm:/dev/shm:rw"}}, "ipc"},
		{"something below it is bound", Config{Binds: []string{"/x:/dev//shm/x"}}, "ipc"},
		{"it is bound from elsewhere", Config{Customize: func(_ *container.Config, h *container.HostConfig) {
			h.Mounts = []mount.Mount{{Type: mount.TypeBind, Source: "/x", Target: "/dev/shm"}}
		}}, "ipc"},
		{"it is another one", Config{Customize: func(_ *container.Config, h *container.HostConfig) { delete(h.Tmpfs, "/dev/shm") }}, "ipc"},
		{"all is the host's", Config{Customize: func(_ *container.Config, h *container.HostConfig) { h.IpcMode = "host" }}, ""},
		{"all can be another container's", Config{Customize: func(_ *container.Config, h *container.HostConfig) { h.IpcMode = "shareable" }}, ""},
		{"the daemon decides", Config{Customize: func(_ *container.Config, h *container.HostConfig) { h.IpcMode = "" }}, ""},
	} {
		tc.cfg.Image = "x"
		cfg, err := tc.cfg.resolve()
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := settings(cfg, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Cmd[2:], " "); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
