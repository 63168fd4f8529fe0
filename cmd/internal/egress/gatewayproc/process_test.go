//go:build linux

package gatewayproc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// serverVar makes this program a server that starts a gateway, says which process that
// is, and waits to be killed.
const serverVar = "CUBBY_TEST_SERVER"

func TestMain(m *testing.M) {
	Dispatch()
	if os.Getenv(serverVar) != "" {
		p := Start(Config{})
		p.needed()
		for p.PID() == 0 {
			time.Sleep(time.Millisecond)
		}
		fmt.Println(p.PID())
		select {}
	}
	os.Exit(m.Run())
}

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func start(t *testing.T, cfg Config) *Process {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	p := Start(cfg)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	p.needed()
	waitFor(t, "the process", func() bool { return p.PID() != 0 })
	return p
}

// kill sends the process a signal and returns which one that was. One that is stopped
// has stopped then.
func kill(t *testing.T, p *Process, signal unix.Signal) (pid int) {
	t.Helper()
	waitFor(t, "the process", func() bool { pid = p.PID(); return pid > 0 }) // 0 would be this test's own group
	if err := unix.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	if signal == unix.SIGSTOP {
		waitFor(t, "the process to stop", func() bool { return strings.HasPrefix(fields(t, fmt.Sprintf("/proc/%d/status", pid))["State"], "T") })
	}
	return pid
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for ", what)
		}
	}
}

// TestConfined: what the process has, when it has begun to serve, is what it was left.
func TestConfined(t *testing.T) {
	p := start(t, Config{})
	attached(t, p, "i1")
	proc := fmt.Sprintf("/proc/%d/", p.PID())
	status := fields(t, proc+"status")
	for name, want := range map[string]string{
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		"Seccomp": "2", "NoNewPrivs": "1",
	} {
		if status[name] != want {
			t.Errorf("%s is %q, want %q", name, status[name], want)
		}
	}
	if uid := strings.Fields(status["Uid"])[0]; os.Geteuid() == 0 && uid == "0" {
		t.Error("it runs as the host's root")
	}
	threads, err := filepath.Glob(proc + "task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, path := range threads {
		if s := fields(t, path); s["CapEff"] != "0000000000000000" || s["Seccomp"] != "2" {
			t.Errorf("%s: CapEff %s, Seccomp %s", path, s["CapEff"], s["Seccomp"])
		}
	}
	entries, err := os.ReadDir(proc + "root")
	if err != nil && os.Geteuid() == 0 {
		t.Error(err)
	}
	if len(entries) > 0 {
		t.Errorf("in its root: %v", entries)
	}
	for _, ns := range []string{"user", "mnt", "ipc", "uts"} {
		theirs, err := os.Readlink(proc + "ns/" + ns)
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		if err == nil && theirs == ours {
			t.Errorf("its %s namespace is ours", ns)
		}
	}
}

func fields(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		all[name] = strings.TrimSpace(value)
	}
	return all
}

// attached gives a sandbox a card, and returns the end that its machine would have.
func attached(t *testing.T, p *Process, sandbox string) net.Conn {
	t.Helper()
	f, err := p.Attach(sandbox, egress.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// refusedPort sends the first packet of a connection to an address that no closed
// network lets out, and waits for the answer, which is a reset.
func refusedPort(c net.Conn, port uint16) error {
	syn := tcpSYN([4]byte{10, 88, 0, 2}, [4]byte{192, 0, 2, 1}, 1024+port, port)
	if _, err := c.Write(syn); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	answer := make([]byte, 1500)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	const rst = 0x04
	if n < 40 || answer[9] != unix.IPPROTO_TCP || answer[33]&rst == 0 {
		return fmt.Errorf("the answer is % x", answer[:n])
	}
	return nil
}

// TestRestarted: a process that dies is replaced, and the cards that were there are
// served by the next with the same rules.
func TestRestarted(t *testing.T) {
	p := start(t, Config{})
	card := attached(t, p, "i1")
	if err := refusedPort(card, 80); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		before := kill(t, p, unix.SIGKILL)
		// A question that nobody reads at this moment is answered by the next.
		if err := refusedPort(card, 443); err != nil {
			t.Fatal("after the process was killed: ", err)
		}
		if pid := p.PID(); pid == before {
			t.Error("the same process")
		}
	}
	if err := p.Failure(); err != nil {
		t.Error(err)
	}
}

// TestNeeded: the process is started when a sandbox may reach something, or sends its
// first packet, which is answered; and not for one that does neither.
func TestNeeded(t *testing.T) {
	begin := func(t *testing.T) *Process {
		p := Start(Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		t.Cleanup(func() { p.Close() })
		return p
	}
	t.Run("a packet", func(t *testing.T) {
		p := begin(t)
		quiet, used := attached(t, p, "i1"), attached(t, p, "i2")
		time.Sleep(50 * time.Millisecond) // nothing to wait for: it must not happen
		if p.PID() != 0 {
			t.Error("it was started for nobody")
		}
		// A machine that ends without a packet is no need.
		gone := attached(t, p, "i3")
		gone.Close()
		time.Sleep(50 * time.Millisecond)
		if p.PID() != 0 {
			t.Error("it was started for a machine that ended")
		}
		for _, card := range []net.Conn{used, quiet} {
			if err := refusedPort(card, 80); err != nil {
				t.Error(err)
			}
		}
	})
	for name, begins := range map[string]func(p *Process) error{
		"an open sandbox": func(p *Process) error {
			f, err := p.Attach("i1", egress.Rules{Open: true})
			if err == nil {
				err = f.Close()
			}
			return err
		},
		"new rules": func(p *Process) error {
			attached(t, p, "i1")
			return p.Update(t.Context(), "i1", egress.Rules{Allow: []string{"example.com"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(t)
			if err := begins(p); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the process", func() bool { return p.PID() != 0 })
		})
	}
}

// TestCardsWakeNobodyElse: a card that the gateway reads is not in this process's poller, which
// each packet would wake.
func TestCardsWakeNobodyElse(t *testing.T) {
	p := Start(Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(func() { p.Close() })
	theirs := map[string]*os.File{}
	for id, rules := range map[string]egress.Rules{"closed": {}, "open": {Open: true}} {
		f, err := p.Attach(id, rules)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		theirs[id] = f
	}
	waitFor(t, "the process", func() bool { return p.PID() != 0 })
	for id, f := range theirs {
		p.mu.Lock()
		end := p.cards[id].end
		p.mu.Unlock()
		for what, f := range map[string]*os.File{"the gateway's end": end, "the machine's end": f} {
			socket := socketOf(t, f)
			waitFor(t, what+" of the sandbox that is "+id+" to leave the poller", func() bool { return !polled(t)[socket] })
		}
	}
}

// socketOf names a socket as /proc does.
func socketOf(t *testing.T, f *os.File) (name string) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) { name, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return name
}

// polled are the files that are in an epoll of this process.
func polled(t *testing.T) map[string]bool {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	all, epolls := map[string]bool{}, 0
	for _, path := range infos {
		info, err := os.ReadFile(path)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(info)) {
			var fd int
			if _, err := fmt.Sscanf(line, "tfd: %d", &fd); err != nil {
				continue
			}
			epolls++
			if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil {
				all[name] = true
			}
		}
	}
	if epolls == 0 {
		t.Fatal("the runtime's poller was not found")
	}
	return all
}

// TestUpdate waits for the rules to hold, with and without a process.
func TestUpdate(t *testing.T) {
	p := start(t, Config{})
	attached(t, p, "i1")
	open := egress.Rules{Open: true}
	if err := p.Update(t.Context(), "i1", open); err != nil {
		t.Error(err)
	}
	if err := p.Update(t.Context(), "i2", open); !errors.Is(err, ErrUnknown) {
		t.Errorf("a sandbox without a card: %v", err)
	}
	if err := p.Update(t.Context(), "i1", egress.Rules{Allow: []string{"a b"}}); err == nil {
		t.Error("a rule that is none was taken")
	}
	if _, err := p.Attach("i3", egress.Rules{Allow: []string{"a b"}}); err == nil {
		t.Error("a card with a rule that is none")
	}
	// One that does not answer: whoever waits can give up, and killed it is as good
	// as one that has the new rules.
	pid := kill(t, p, unix.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Update(ctx, "i1", open); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a process that is stopped: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Update(t.Context(), "i1", open) }()
	waitFor(t, "the update's message", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) > 0
	})
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFlush: what code has seen refused was told when Flush returns.
func TestFlush(t *testing.T) {
	var told atomic.Int32
	p := start(t, Config{OnFlow: func(egress.Flow) {
		time.Sleep(10 * time.Millisecond) // a server that is slow
		told.Add(1)
	}})
	if err := p.Flush(t.Context()); err != nil {
		t.Errorf("before there is a process: %v", err)
	}
	card := attached(t, p, "i1")
	for i := range 20 {
		if err := refusedPort(card, uint16(81+i)); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := told.Load(); got != int32(i+1) {
			t.Fatalf("%d flows were told, %d refused", got, i+1)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// TestClose: nothing is left, neither the process nor descriptors.
func TestClose(t *testing.T) {
	before := descriptors(t)
	p := Start(Config{})
	p.needed()
	waitFor(t, "the process", func() bool { return p.PID() != 0 })
	pid := p.PID()
	for i := range 20 {
		f, err := p.Attach("i"+strconv.Itoa(i), egress.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	p.Detach("i0")
	p.Detach("i0")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(pid, 0); pid == 0 || err != unix.ESRCH {
		t.Errorf("the process: %v", err)
	}
	waitFor(t, "the descriptors' end", func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// TestCloseAtOnce: a process that is being started when its owner ends does not keep it.
func TestCloseAtOnce(t *testing.T) {
	for i := range 20 {
		p := Start(Config{})
		p.needed()
		time.Sleep(time.Duration(i) * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- p.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("Close hangs")
		}
	}
}

// TestLargeRules: ten thousand rules pass, with the card.
func TestLargeRules(t *testing.T) {
	p := start(t, Config{})
	var rules egress.Rules
	for i := range 10_000 {
		rules.Allow = append(rules.Allow, fmt.Sprintf("host-%d.of-a-domain-with-a-rather-long-name.example.com:443", i))
	}
	f, err := p.Attach("i1", rules)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.Update(t.Context(), "i1", rules); err != nil {
		t.Error(err)
	}
}

// FuzzWire: whatever comes over the socket is an error or a message.
func FuzzWire(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x0f{\"op\":\"attach\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, err := gatewaysWire(os.NewFile(uintptr(fds[0]), "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		other := os.NewFile(uintptr(fds[1]), "b")
		go func() {
			other.Write(data)
			other.Close()
		}()
		for {
			if _, _, err := w.receive(); err != nil {
				return
			}
		}
	})
}

// tcpSYN is the first packet of a connection over IPv4.
func tcpSYN(from, to [4]byte, fromPort, toPort uint16) []byte {
	p := make([]byte, 40)
	p[0], p[3], p[8], p[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	copy(p[12:], from[:])
	copy(p[16:], to[:])
	p[20], p[21], p[22], p[23] = byte(fromPort>>8), byte(fromPort), byte(toPort>>8), byte(toPort)
	p[32], p[33] = 5<<4, 0x02 // five words of header, SYN
	p[34] = 0xff
	checksum := func(at int, sum uint32, data []byte) {
		for i := 0; i+1 < len(data); i += 2 {
			sum += uint32(data[i])<<8 | uint32(data[i+1])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		p[at], p[at+1] = byte(^sum>>8), byte(^sum)
	}
	checksum(10, 0, p[:20])
	pseudo := append(append([]byte{}, p[12:20]...), 0, unix.IPPROTO_TCP, 0, 20)
	checksum(36, 0, append(pseudo, p[20:]...))
	return p
}

// hostile is a gateway that is somebody else's: it says what the test wants.
func hostile(t *testing.T, cfg Config) (p *Process, theirs *wire, ended chan error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := serversWire(os.NewFile(uintptr(fds[0]), "server"))
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = gatewaysWire(os.NewFile(uintptr(fds[1]), "gateway")); err != nil {
		t.Fatal(err)
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	p = Start(cfg)
	ended = make(chan error, 1)
	go func() { ended <- p.converse(ours, 1) }()
	t.Cleanup(func() {
		theirs.close()
		p.gone(ours)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, theirs, ended
}

// TestHostileGateway: whatever the process says, the server keeps neither descriptors
// nor much memory, and believes nothing about sandboxes that it does not know.
func TestHostileGateway(t *testing.T) {
	var flows []egress.Flow
	p, w, ended := hostile(t, Config{OnFlow: func(f egress.Flow) { flows = append(flows, f) }})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := descriptors()
	long := strings.Repeat("x", 10<<10)
	for range 200 {
		for _, m := range []*message{
			{Op: opDone, Seq: 7, Error: long}, {Op: opDone}, {Op: opUpdate, Sandbox: "i2"}, {Op: opDetach}, {Op: "?"}, {Op: opReady},
			{Op: opFlow, Flow: &egress.Flow{Sandbox: "nobody", Host: long, Reason: long}}, {Op: opFlow}, {Op: opLog}, {Op: opLog, Log: []byte(`{"msg":1}`)},
		} {
			if err := w.send(m, null); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitFor(t, "the last flow", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.ready })
	if err := w.send(&message{Op: opFlow, Flow: &egress.Flow{Host: long, Reason: strings.Repeat("y", maxTold)}}, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !strings.Contains(err.Error(), "bytes") {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("a message that is too long is read")
	}
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors, before it were %d", after, before)
	}
	if len(flows) != 200 {
		t.Fatalf("%d flows", len(flows))
	}
	for _, f := range flows {
		if len(f.Host) > maxText+len("…") || len(f.Reason) > maxText+len("…") {
			t.Fatalf("texts of %d and %d bytes are kept", len(f.Host), len(f.Reason))
		}
	}
}

// TestUpdateOfAStoppedGateway: a process that does not take new rules is dead when the
// call returns.
func TestUpdateOfAStoppedGateway(t *testing.T) {
	p := start(t, Config{})
	attached(t, p, "i1")
	pid := kill(t, p, unix.SIGSTOP)
	if err := p.Update(t.Context(), "i1", egress.Rules{Allow: []string{"192.0.2.1"}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process is there when its sandbox has new rules: %v", err)
	}
	waitFor(t, "another process", func() bool { return p.PID() != 0 && p.PID() != pid })
}

// TestServerKilled: the process ends with the server, also while it is stopped.
func TestServerKilled(t *testing.T) {
	server := exec.Command("/proc/self/exe")
	server.Env = append(os.Environ(), serverVar+"=1")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	waitFor(t, "the end of the gateway", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return err != nil || strings.Contains(string(status), "State:\tZ") // nobody may be there to wait for it
	})
}
