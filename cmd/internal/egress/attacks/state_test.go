//go:build linux

package attacks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// allowed lets a sandbox reach the servers outside that repeat what comes, and one web
// server.
var allowed = cubby.Network{Allow: []string{outside + ":8081-8082", "good.test"}}

func opened(t *testing.T, w *world) *embedded.Cubby {
	t.Helper()
	testenv.CheckLeaks(t)
	c, err := embedded.Open(t.Context(), embedded.Config{
		Binary: testenv.Cubby(t), Python: "/usr/bin/python3", Reach: []string{outside}, Resolvers: []string{w.resolver},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func created(t *testing.T, c *embedded.Cubby, n cubby.Network) *cubby.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sbx, err := c.Create(ctx, cubby.WithNetwork(n))
	if err != nil {
		t.Fatal(err)
	}
	prelude, _ := read(t)
	run(t, sbx, prelude)
	return sbx
}

func expect(t *testing.T, sbx *cubby.Sandbox, code, want string) {
	t.Helper()
	if ex := run(t, sbx, code); ex.Stdout != want || ex.Error != nil {
		t.Errorf("%s\nprinted %q, want %q: %v", code, ex.Stdout, want, ex.Error)
	}
}

// open is code that opens connections of every kind, and looks whether they pass bytes.
const connections = `
def echo(s):
    try:
        s.settimeout(3); s.sendall(b"x"); return s.recv(1) == b"x"
    except OSError: return False
tcp = socket.create_connection((OUT, 8081)); tcp.recv(100)
named = socket.create_connection(("good.test", 8082)); named.recv(100)
web = socket.create_connection(("good.test", 80))
def get():
    try:
        web.settimeout(3); web.sendall(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"); return web.recv(12) == b"HTTP/1.1 200" and len(web.recv(4096)) > 0
    except OSError: return False
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((OUT, 8081))
endless = socket.create_connection(("good.test", 8080)); endless.sendall(b"GET /endless HTTP/1.1\r\nHost: good.test\r\n\r\n")
def flows(): return [echo(tcp), echo(named), get(), echo(u)]
print(flows())
`

// TestTightened: connections that a new rule does not allow are cut before the change
// returns, those that it does go on, and no other kind of flow is left.
func TestTightened(t *testing.T) {
	w := newWorld(t)
	c := opened(t, w)
	sbx := created(t, c, allowed)
	expect(t, sbx, connections, "[True, True, True, True]\n")
	set := func(n cubby.Network) {
		t.Helper()
		if err := sbx.SetNetwork(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	set(cubby.Network{Allow: append([]string{"other.test"}, allowed.Allow...)})
	expect(t, sbx, "print(flows())", "[True, True, True, True]\n")
	set(cubby.Network{Allow: []string{outside + ":8081"}})
	w.begin()
	expect(t, sbx, "print(flows(), dial('good.test', 8082))", "[True, False, False, True] no name\n")
	set(cubby.Network{})
	w.begin()
	expect(t, sbx, "print(flows(), dial(OUT, 8081))", "[False, False, False, False] refused\n")
	if len(w.seen) > 0 {
		t.Errorf("after the network was closed, outside saw %q", w.seen)
	}
	set(allowed)
	expect(t, sbx, connections, "[True, True, True, True]\n")
}

// gatewayOf is the process id of the gateway that belongs to this process.
func gatewayOf(t *testing.T) int {
	t.Helper()
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		line, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if string(line) == "cubby-gateway\x00" && descends(pid, os.Getpid()) {
			return pid
		}
	}
	return 0
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func descends(pid, from int) bool {
	for pid > 1 {
		if pid == from {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fmt.Sscanf(rest[2:], "%d", &pid)
	}
	return false
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: ", what)
		}
	}
}

// TestGatewayEnds: while there is no gateway there is no network, and the next one has
// the same rules.
func TestGatewayEnds(t *testing.T) {
	w := newWorld(t)
	c := opened(t, w)
	sbx, closed := created(t, c, allowed), created(t, c, cubby.Network{})
	expect(t, sbx, connections, "[True, True, True, True]\n")
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSEGV, unix.SIGTERM} {
		old := gatewayOf(t)
		if old == 0 {
			t.Fatal("there is no gateway")
		}
		if err := unix.Kill(old, signal); err != nil {
			t.Fatal(err)
		}
		until(t, "another gateway", func() bool { now := gatewayOf(t); return now != 0 && now != old })
		w.begin()
		expect(t, sbx, "print([echo(tcp), echo(named), get()])", "[False, False, False]\n")
		expect(t, sbx, connections, "[True, True, True, True]\n")
		expect(t, sbx, "print(dial(OUT, 25), dial('denied.test', 80))", "refused no name\n")
		expect(t, closed, "print(dial(OUT, 8081), dial('good.test', 80))", "refused no name\n")
	}
	// One that is stopped and not dead lets nothing pass either, and is replaced when
	// it is asked to do something.
	old := gatewayOf(t)
	if err := unix.Kill(old, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "that it stops", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", old))
		return err == nil && strings.Contains(string(status), "State:\tT")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := sbx.SetNetwork(ctx, cubby.Network{Allow: []string{outside + ":8081"}}); err != nil {
		t.Fatal(err)
	}
	expect(t, sbx, "print(echo(named))", "False\n")
	until(t, "another gateway", func() bool { now := gatewayOf(t); return now != 0 && now != old })
	expect(t, sbx, "print(dial(OUT, 8081)[:4], dial('good.test', 80))", "open no name\n")
}

// floods are what a sandbox may do to take the gateway for itself.
var floods = []struct{ name, code string }{
	{"connections", `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept = []
def flood():
    while True:
        try:
            s = socket.socket(); s.setblocking(False); s.connect_ex((OUT, 8081)); kept.append(s)
        except OSError: kept.clear()
`},
	{"idle connections", `
kept = []
for i in range(1000):
    try: kept.append(socket.create_connection((OUT, 8081), 10))
    except OSError: break
def flood(): time.sleep(3600)
`},
	{"answers that nobody reads", `
kept = []
for i in range(300):
    try:
        s = socket.create_connection(("good.test", 8080), 10); s.sendall(b"GET /endless HTTP/1.1\r\nHost: good.test\r\n\r\n"); kept.append(s)
    except OSError: break
def flood(): time.sleep(3600)
`},
	{"bytes", `
def flood():
    while True:
        try:
            s = socket.create_connection((OUT, 8081))
            threading.Thread(target=lambda: [None for _ in iter(lambda: s.recv(65536), b"")], daemon=True).start()
            while True: s.sendall(b"x" * (1 << 20))
        except OSError: time.sleep(0.1)
`},
	{"questions", `
def flood():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        try: s.sendto(struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + b"\x08" + os.urandom(4).hex().encode() + b"\4good\4test\0\0\1\0\1", (GATE, 53))
        except OSError: pass
`},
	{"datagrams", `
def flood():
    while True:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(10):
            try: s.sendto(b"x" * 16000, (OUT, 8081))
            except OSError: pass
`},
	{"packets that are refused", `
def flood():
    while True:
        s = socket.socket(); s.setblocking(False); s.connect_ex(("1.1.1.1", 80)); s.close()
`},
	{"beginnings of requests", `
kept = []
for i in range(900):
    try:
        s = socket.create_connection(("good.test", random.choice((80, 443, 8080))), 10); s.sendall(b"G"); kept.append(s)
    except OSError: break
def flood():
    while True:
        for s in kept:
            try: s.sendall(b"E")
            except OSError: pass
        time.sleep(1)
`},
}

// TestFloods: beside a sandbox that does its worst, another one is served, and the
// gateway lives.
func TestFloods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	w := newWorld(t)
	c := opened(t, w)
	good := created(t, c, allowed)
	expect(t, good, "print(dial(OUT, 8081)[:4])", "open\n")
	gateway := gatewayOf(t)
	for _, f := range floods {
		t.Run(f.name, func(t *testing.T) {
			bad := created(t, c, allowed)
			run(t, bad, f.code+"\n[threading.Thread(target=flood, daemon=True).start() for _ in range(4)]")
			ex := run(t, good, `
slow = []
for i in range(20):
    began = time.time()
    got = talk("good.test", 80, b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n", 20)
    if b"200 OK" not in got: print("failed", got)
    slow.append(time.time() - began)
print("median %.0f ms, worst %.0f ms" % (sorted(slow)[10] * 1000, max(slow) * 1000))
if sorted(slow)[10] > 2: print("too slow")`)
			if strings.Contains(ex.Stdout, "failed") || strings.Contains(ex.Stdout, "too slow") || ex.Error != nil {
				t.Errorf("%s %v", ex.Stdout, ex.Error)
			}
			if now := gatewayOf(t); now != gateway {
				t.Errorf("the gateway died: %d is %d now", gateway, now)
				gateway = now
			}
			t.Logf("beside it: %sthe gateway has %s", ex.Stdout, memoryOf(gateway))
			if err := bad.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// memoryOf says how much a process has resident.
func memoryOf(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
