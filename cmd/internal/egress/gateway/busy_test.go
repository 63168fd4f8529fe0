//go:build linux

package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// busyEnv makes this program a sandbox that is busy: "ADDR:PORT CONNECTIONS".
const busyEnv = "CUBBY_TEST_BUSY"

// busy sends and receives over many connections at once until it is killed. Its card is
// descriptor 3.
func busy() {
	var at string
	var n int
	if _, err := fmt.Sscan(os.Getenv(busyEnv), &at, &n); err != nil {
		panic(err)
	}
	tb := &testing.B{}
	b := stackOn(tb, os.NewFile(3, "card"))
	var ready sync.WaitGroup
	start := make(chan struct{})
	for range n {
		ready.Add(1)
		go func() {
			var c io.ReadWriter
			for c == nil {
				if made, err := b.dial(netip.MustParseAddrPort(at)); err == nil {
					c = made
				}
			}
			ready.Done()
			<-start
			go func() { _, _ = io.Copy(io.Discard, c) }()
			data := make([]byte, 16<<10)
			for {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		}()
	}
	ready.Wait()
	close(start)
	fmt.Println("busy")
	select {}
}

// startBusy attaches a sandbox of another process, with connections that are all busy.
func startBusy(tb testing.TB, g *Gateway, id string, p *egress.Policy, server netip.AddrPort, connections int) {
	tb.Helper()
	ours, theirs := cardPair(tb)
	if err := g.Attach(id, ours, p); err != nil {
		tb.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), busyEnv+"="+server.String()+" "+strconv.Itoa(connections))
	c.ExtraFiles = []*os.File{theirs}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	theirs.Close()
	tb.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatalf("the busy sandbox: %q, %v", line, err)
	}
}

// disturbed measures a transfer in MB/s and a request's median, over a kept connection.
func disturbed(tb testing.TB, b *box, source, echoes netip.AddrPort) (rate float64, median time.Duration) {
	tb.Helper()
	c := b.mustDial(echoes)
	var all []time.Duration
	m := make([]byte, 1024)
	for range 300 {
		began := time.Now()
		if _, err := c.Write(m); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.ReadFull(c, m); err != nil {
			tb.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	c.Close()
	slices.Sort(all)
	d := b.mustDial(source)
	began, n := time.Now(), 0
	got := make([]byte, 1<<20)
	for time.Since(began) < 2*time.Second {
		r, err := d.Read(got)
		if err != nil {
			tb.Fatal(err)
		}
		n += r
	}
	took := time.Since(began)
	d.Close()
	return float64(n) / 1e6 / took.Seconds(), all[len(all)/2]
}

// BenchmarkBeside tells what a sandbox has beside another one with 1,000 busy
// connections, as the part of what it has alone. All share this machine's processors.
func BenchmarkBeside(b *testing.B) {
	own := ownAddr(b)
	data := make([]byte, 1<<16)
	source := serve(b, own, func(c *net.TCPConn) {
		for {
			if _, err := c.Write(data); err != nil {
				return
			}
		}
	})
	echoes := serve(b, own, echo)
	g, _ := newGateway(b, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	p := policy(b, g, egress.Rules{Open: true})
	in := newBox(b, g, "a", p)
	rate, median := disturbed(b, in, source, echoes)
	startBusy(b, g, "b", p, echoes, 1000)
	for b.Loop() {
		besideRate, besideMedian := disturbed(b, in, source, echoes)
		b.ReportMetric(rate, "MB/s-alone")
		b.ReportMetric(besideRate, "MB/s-beside")
		b.ReportMetric(float64(median.Microseconds()), "us-alone")
		b.ReportMetric(float64(besideMedian.Microseconds()), "us-beside")
	}
}
