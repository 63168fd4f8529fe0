//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
)

const (
	// transferTime is how long bytes are sent for one measurement of throughput.
	transferTime = time.Second
	// besideRounds is how often the neighbours are measured in turn.
	besideRounds = 3
	// busyConnections are those of the sandbox beside which others are measured.
	busyConnections = 1000
	// netName resolves to the servers of the benchmark.
	netName = "bench.test"
	// manyRules are those of the sandbox with rules.
	manyRules = 1000
	// createsPerRound is how often sandboxes of each kind are made in a round: what the
	// network adds to that is little beside how much one time differs from the next.
	createsPerRound = 5
)

// netServers are what sandboxes connect to: they stand for what is outside.
type netServers struct {
	down, up, web, resolver string // addresses
}

func port(at string) string { return at[strings.LastIndex(at, ":")+1:] }

func startNetServers() (*netServers, error) {
	s := &netServers{}
	serve := func(at *string, f func(net.Conn)) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*at = l.Addr().String()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); f(c) }()
			}
		}()
		return nil
	}
	block := make([]byte, 256<<10)
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.resolver = udp.LocalAddr().String()
	resolver := &dns.Server{PacketConn: udp, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg)
		a.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}
			a.Answer = []dns.RR{&dns.A{Hdr: head, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(a)
	})}
	go func() { _ = resolver.ActivateAndServe() }()
	return s, errors.Join(
		serve(&s.down, func(c net.Conn) {
			for {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		}),
		serve(&s.up, func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{io.Discard}, c) }),
		serve(&s.web, func(c net.Conn) {
			r := bufio.NewReader(c)
			for {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				if _, err := c.Write(answer); err != nil || req.Close {
					return
				}
			}
		}),
	)
}

// netClient is the program that measures: the same inside and outside of sandboxes. It
// prints megabytes a second, or times in milliseconds, as JSON.
const netClient = `
import json, socket, sys, time
what, host, port, seconds, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
request = b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host.encode(), port)
if what in ("down", "up"):
    s = socket.create_connection((host, port)); b = bytearray(1 << 18); total = 0
    end = time.perf_counter() + 0.2
    while time.perf_counter() < end: (s.recv_into(b) if what == "down" else s.send(b))
    began = time.perf_counter()
    while time.perf_counter() < began + seconds: total += s.recv_into(b) if what == "down" else s.send(b)
    print(json.dumps([total / 1e6 / (time.perf_counter() - began)]))
elif what == "kept":
    s = socket.create_connection((host, port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); all = []
    for i in range(n + 5):
        began = time.perf_counter(); s.sendall(request); s.recv(4096); all.append((time.perf_counter() - began) * 1000)
    print(json.dumps(all[5:]))
elif what == "new":
    all = []
    for i in range(n + 5):
        began = time.perf_counter(); s = socket.create_connection((host, port)); s.sendall(request); s.recv(4096); s.close()
        all.append((time.perf_counter() - began) * 1000); time.sleep(0.005)
    print(json.dumps(all[5:]))
`

// loopbackServer as the host of the busy program is a server of its own, inside.
const loopbackServer = "127.0.0.1"

// busyProgram keeps connections busy with requests until it is killed.
const busyProgram = `
import os, selectors, socket, sys
if sys.argv[1] == "127.0.0.1":
    l = socket.create_server(("127.0.0.1", 0), backlog=1000); sys.argv[2] = str(l.getsockname()[1])
    if os.fork() == 0:
        sel = selectors.DefaultSelector(); sel.register(l, selectors.EVENT_READ)
        while True:
            for key, _ in sel.select():
                if key.fileobj is l: sel.register(l.accept()[0], selectors.EVENT_READ)
                else: key.fileobj.recv(65536); key.fileobj.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
sel, request = selectors.DefaultSelector(), b"GET / HTTP/1.1\r\nHost: %s:%s\r\n\r\n" % (sys.argv[1].encode(), sys.argv[2].encode())
for i in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); sel.register(s, selectors.EVENT_READ)
for key in list(sel.get_map().values()): key.fileobj.sendall(request)
print("busy", flush=True)
while True:
    for key, _ in sel.select(): key.fileobj.recv(65536); key.fileobj.sendall(request)
`

// side is where the client runs.
type side func(ctx context.Context, program string, args ...string) ([]byte, error)

func onHost(python string) side {
	return func(ctx context.Context, program string, args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, python, append([]string{"-c", program}, args...)...).Output()
	}
}

func inSandbox(sbx *cubby.Sandbox) side {
	return func(ctx context.Context, program string, args ...string) ([]byte, error) {
		if err := sbx.Files().Write(ctx, "/tmp/client.py", strings.NewReader(program), 0o644); err != nil {
			return nil, err
		}
		res, err := sbx.Commands().Run(ctx, "/usr/bin/python3 /tmp/client.py "+strings.Join(args, " "), cubby.WithTimeout(2*time.Minute))
		if err != nil {
			return nil, err
		}
		if res.ExitCode != 0 {
			return nil, fmt.Errorf("%s", res.Stderr)
		}
		return []byte(res.Stdout), nil
	}
}

func (s side) measure(ctx context.Context, what, host, port string, n int) ([]float64, error) {
	out, err := s(ctx, netClient, what, host, port, fmt.Sprint(transferTime.Seconds()), fmt.Sprint(n))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var all []float64
	return all, json.Unmarshal(out, &all)
}

// numbers are a row's measurements.
type numbers struct {
	name string
	all  []float64
}

func (n *numbers) at(part float64) float64 {
	all := slices.Sorted(slices.Values(n.all))
	return all[min(len(all)-1, int(part*float64(len(all))))]
}

// netBench measures what the network costs, and fails if a goal is missed.
func netBench(ctx context.Context, binary, python string, rounds int, out io.Writer) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	servers, err := startNetServers()
	if err != nil {
		return err
	}
	c, err := embedded.Open(ctx, embedded.Config{
		Binary: binary, Python: python, Reach: []string{"127.0.0.1", "192.0.2.0/24"}, Resolvers: []string{servers.resolver},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	create := func(n cubby.Network) (*cubby.Sandbox, error) {
		return c.Create(ctx, cubby.WithNetwork(n), cubby.WithTimeout(time.Hour))
	}
	// Names stand for the servers, as an address of loopback would be the sandbox's.
	// With rules: many, of which the last one counts.
	var rules []string
	for i := range manyRules {
		rules = append(rules, fmt.Sprintf("host-%d.example:443", i), netip.AddrFrom4([4]byte{198, 41, byte(i >> 8), byte(i)}).String())
	}
	with, err := create(cubby.Network{Allow: append(rules, netName)})
	if err != nil {
		return err
	}
	without, err := create(cubby.Network{Allow: []string{"*"}})
	if err != nil {
		return err
	}
	host := onHost(python)
	rows := map[string]*numbers{}
	var order []*numbers
	add := func(name string, values []float64) {
		if rows[name] == nil {
			rows[name] = &numbers{name: name}
			order = append(order, rows[name])
		}
		rows[name].all = append(rows[name].all, values...)
	}
	one := func(name string, s side, what, host, at string, n int) error {
		values, err := s.measure(ctx, what, host, port(at), n)
		if err == nil {
			add(name, values)
		}
		return err
	}
	for range rounds {
		for _, way := range []struct{ what, at string }{{"down", servers.down}, {"up", servers.up}} {
			if err := errors.Join(
				one(way.what+" host MB/s", host, way.what, "127.0.0.1", way.at, 0),
				one(way.what+" with rules MB/s", inSandbox(with), way.what, netName, way.at, 0),
				one(way.what+" without MB/s", inSandbox(without), way.what, netName, way.at, 0),
			); err != nil {
				return err
			}
		}
		for _, what := range []string{"kept", "new"} {
			if err := errors.Join(
				one(what+" host ms", host, what, "127.0.0.1", servers.web, 50),
				one(what+" sandbox ms", inSandbox(with), what, netName, servers.web, 50),
			); err != nil {
				return err
			}
		}
		if err := creates(ctx, python, create, add); err != nil {
			return err
		}
	}
	// Another sandbox beside one with many busy connections, and beside one that does the
	// same without the gateway: the machine's processors are shared by both.
	for range besideRounds {
		if err := one("alone down MB/s", inSandbox(with), "down", netName, servers.down, 0); err != nil {
			return err
		}
		for _, beside := range []struct{ name, host, port string }{
			{"beside loopback", loopbackServer, "0"}, {"beside", netName, port(servers.web)},
		} {
			stop, err := busy(ctx, without, beside.host, beside.port)
			if err != nil {
				return err
			}
			err = errors.Join(
				one(beside.name+" down MB/s", inSandbox(with), "down", netName, servers.down, 0),
				one(beside.name+" kept ms", inSandbox(with), "kept", netName, servers.web, 100),
			)
			stop()
			if err != nil {
				return err
			}
		}
	}
	perCard, err := idleCards(ctx, c, with)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-28s %9s %9s %9s   (rounds: %d)\n", "", "p5", "median", "p95", rounds)
	for _, r := range order {
		fmt.Fprintf(out, "%-28s %9.2f %9.2f %9.2f\n", r.name, r.at(0.05), r.at(0.5), r.at(0.95))
	}
	middle := func(name string) float64 { return rows[name].at(0.5) }
	loopbackPart := 1. / 15
	if os.Geteuid() != 0 {
		loopbackPart = 1. / 30
	}
	g := &goals{out: out}
	goal := g.goal
	for _, way := range []string{"down", "up"} {
		goal(way+": with rules / without", middle(way+" with rules MB/s")/middle(way+" without MB/s"), 0.9, true)
		goal(way+": sandbox / host's loopback", middle(way+" with rules MB/s")/middle(way+" host MB/s"), loopbackPart, true)
	}
	goal("request on a kept connection, more than the host's, ms", middle("kept sandbox ms")-middle("kept host ms"), 1, false)
	goal("request on a new one by name, more than the host's, ms", middle("new sandbox ms")-middle("new host ms"), 4, false)
	goal("create with rules - closed / bare Python", middle(rulesMore)/middle("bare Python ms"), 0.2, false)
	goal("create with rules - open / bare Python", middle(rulesMoreThanOpen)/middle("bare Python ms"), 0.2, false)
	fmt.Fprintf(out, "%-52s %9.3f  (for comparison: requests that do not pass the gateway)\n",
		"transfer beside 1,000 connections inside / alone", middle("beside loopback down MB/s")/middle("alone down MB/s"))
	goal("transfer beside 1,000 busy connections / alone", middle("beside down MB/s")/middle("alone down MB/s"), 1./3, true)
	goal("requests beside them / alone", middle("beside kept ms")/middle("kept sandbox ms"), 3, false)
	goal("an idle card, MB in the gateway", perCard, 1, false)
	return g.missed
}

// The rows of how much longer it takes to make a sandbox with rules than another of the
// same turn.
const rulesMore, rulesMoreThanOpen = "  with rules - closed ms", "  with rules - open ms"

// creates makes sandboxes of each kind in turn, the first one another each time.
func creates(
	ctx context.Context, python string, create func(cubby.Network) (*cubby.Sandbox, error), add func(string, []float64),
) error {
	kinds := []struct {
		name string
		net  cubby.Network
	}{{"closed", cubby.Network{}}, {"open", cubby.Network{Allow: []string{"*"}}}, {"with rules", cubby.Network{Allow: []string{netName}}}}
	for turn := range createsPerRound {
		bare, err := timed(func() error { return command(ctx, python, "-c", "print(1)")() })
		if err != nil {
			return err
		}
		add("bare Python ms", bare)
		took := map[string]float64{}
		for i := range kinds {
			kind := kinds[(turn+i)%len(kinds)]
			var sbx *cubby.Sandbox
			one, err := timed(func() (err error) { sbx, err = create(kind.net); return err })
			if err != nil {
				return err
			}
			took[kind.name] = one[0]
			if err := sbx.Kill(ctx); err != nil {
				return err
			}
		}
		for _, kind := range kinds {
			add("create "+kind.name+" ms", []float64{took[kind.name]})
		}
		add(rulesMore, []float64{took["with rules"] - took["closed"]})
		add(rulesMoreThanOpen, []float64{took["with rules"] - took["open"]})
	}
	return nil
}

func timed(f func() error) ([]float64, error) {
	began := time.Now()
	err := f()
	return []float64{float64(time.Since(began).Microseconds()) / 1000}, err
}

// busy starts the busy connections of a sandbox; stop ends them.
func busy(ctx context.Context, sbx *cubby.Sandbox, host, port string) (stop func(), err error) {
	if err := sbx.Files().Write(ctx, "/tmp/busy.py", strings.NewReader(busyProgram), 0o644); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	var text strings.Builder
	go func() {
		_, err := sbx.Commands().Run(ctx, fmt.Sprintf("/usr/bin/python3 /tmp/busy.py %s %s %d", host, port, busyConnections),
			cubby.WithTimeout(10*time.Minute), cubby.OnStdout(func(part string) {
				if text.WriteString(part); strings.Contains(text.String(), "busy") {
					select {
					case <-ready:
					default:
						close(ready)
					}
				}
			}))
		ended <- err
	}()
	select {
	case <-ready:
		return func() { cancel(); <-ended }, nil
	case err := <-ended:
		cancel()
		if err == nil {
			err = errors.New("not all of them could be made")
		}
		return nil, fmt.Errorf("busy connections: %w", err)
	}
}

// idleCards returns how many megabytes of the gateway each sandbox takes that has sent
// something and is quiet.
func idleCards(ctx context.Context, c *embedded.Cubby, with *cubby.Sandbox) (float64, error) {
	pid, err := gatewayPID()
	if err != nil {
		return 0, err
	}
	const n = 8
	before, err := private(pid)
	if err != nil {
		return 0, err
	}
	for range n {
		sbx, err := c.Create(ctx, cubby.WithNetwork(cubby.Network{Allow: []string{netName}}))
		if err != nil {
			return 0, err
		}
		defer sbx.Kill(ctx)
		if _, err := sbx.RunCode(ctx, "import socket; socket.gethostbyname('"+netName+"')"); err != nil {
			return 0, err
		}
	}
	after, err := private(pid)
	return (after - before) / 1000 / n, err
}

// gatewayPID finds the gateway among the processes that descend from this one.
func gatewayPID() (int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || string(line) != "cubby-gateway\x00" {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && descends(pid) {
			return pid, nil
		}
	}
	return 0, errors.New("there is no gateway")
}

func descends(pid int) bool {
	for pid > 1 {
		if pid == syscall.Getpid() {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state string
		if _, err := fmt.Sscan(rest, &state, &pid); err != nil {
			return false
		}
	}
	return false
}
