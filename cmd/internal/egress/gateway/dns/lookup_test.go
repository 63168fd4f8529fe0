package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// packets is a resolver that answers packets with bytes, and takes no streams.
func packets(t testing.TB, answer func(q *dns.Msg, send func([]byte))) netip.AddrPort {
	t.Helper()
	conn, streams := listen(t)
	streams.Close()
	answerPackets(t, conn, answer)
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func answerPackets(t testing.TB, conn net.PacketConn, answer func(q *dns.Msg, send func([]byte))) {
	var done sync.WaitGroup
	t.Cleanup(func() { conn.Close(); done.Wait() })
	done.Go(func() {
		b := make([]byte, MaxMessage)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if err := q.Unpack(b[:n]); err != nil {
				t.Error(err)
				return
			}
			answer(q, func(b []byte) { conn.WriteTo(b, from) })
		}
	})
}

func packed(t testing.TB, m *dns.Msg) []byte {
	b, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return b
}

func reply(q *dns.Msg, addr string) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Answer = []dns.RR{record(q.Question[0].Name, netip.MustParseAddr(addr), 60)}
	return m
}

// A message that is not the answer to the question does not become it, and does not keep
// the answer from being read.
func TestForeignPackets(t *testing.T) {
	for name, change := range map[string]func(*dns.Msg){
		"another id":       func(m *dns.Msg) { m.Id++ },
		"another name":     func(m *dns.Msg) { m.Question[0].Name = "www.example.net." },
		"another type":     func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT },
		"another class":    func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no question":      func(m *dns.Msg) { m.Question = nil },
		"two questions":    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"a question":       func(m *dns.Msg) { m.Response = false },
		"another opcode":   func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
		"a name below":     func(m *dns.Msg) { m.Question[0].Name = "a." + m.Question[0].Name },
		"a name that ends": func(m *dns.Msg) { m.Question[0].Name = "." },
	} {
		t.Run(name, func(t *testing.T) {
			server := packets(t, func(q *dns.Msg, send func([]byte)) {
				m := reply(q, "6.6.6.6")
				change(m)
				send(packed(t, m))
				send([]byte{1, 2, 3})
				send(packed(t, reply(q, "1.1.1.1")))
			})
			want := []string{"NOERROR", "www.example.com.\t60\tIN\tA\t1.1.1.1"}
			if got := said(ask(t, view(t, open, server), "www.example.com.", dns.TypeA)); !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A packet from another address than the resolver's is dropped by the kernel, as the
// socket is connected.
func TestForeignSource(t *testing.T) {
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var from atomic.Pointer[net.Addr]
	resolver := resolver(packets(t, func(q *dns.Msg, send func([]byte)) {
		if _, err := other.WriteTo(packed(t, reply(q, "6.6.6.6")), *from.Load()); err != nil {
			t.Error(err)
		}
		send(packed(t, reply(q, "1.1.1.1")))
	}))
	dial := resolver.config.Dial
	resolver.config.Dial = func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		c, err := dial(ctx, network, to)
		if err == nil {
			local := c.LocalAddr()
			from.Store(&local)
		}
		return c, err
	}
	p := compile(t, open, egress.Operator{})
	got := said(ask(t, resolver.View(func() *egress.Policy { return p }), "www.example.com.", dns.TypeA))
	if want := []string{"NOERROR", "www.example.com.\t60\tIN\tA\t1.1.1.1"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// Whoever guesses what a question looks like has to guess its id and its port.
func TestQuestionsAreUnpredictable(t *testing.T) {
	ids, ports := map[uint16]bool{}, map[string]bool{}
	var mu sync.Mutex
	u := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		mu.Lock()
		ids[r.Id], ports[w.RemoteAddr().String()] = true, true
		mu.Unlock()
		w.WriteMsg(new(dns.Msg).SetReply(r))
	})
	v := view(t, open, u.addr)
	for i := range 50 {
		ask(t, v, fmt.Sprintf("a%d.example.com.", i), dns.TypeA)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ids) < 45 || len(ports) < 25 {
		t.Errorf("50 questions had %d ids and came from %d ports", len(ids), len(ports))
	}
}

// One resolver that is of no use costs no more than its time, and another one answers.
func TestNextResolver(t *testing.T) {
	good := serve(t, zone(t, "www.example.com. 60 A 1.1.1.1")).addr
	refusing := serve(t, func(w dns.ResponseWriter, r *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeRefused)) }).addr
	broken := packets(t, func(q *dns.Msg, send func([]byte)) {
		b := packed(t, reply(q, "1.1.1.1"))
		send(b[:len(b)-2])
	})
	giant := packets(t, func(q *dns.Msg, send func([]byte)) {
		m := reply(q, "6.6.6.6")
		for range 2000 {
			m.Answer = append(m.Answer, m.Answer[0])
		}
		send(packed(t, m))
	})
	truncated := packets(t, func(q *dns.Msg, send func([]byte)) { // and nobody listens for TCP
		m := reply(q, "6.6.6.6")
		m.Truncated = true
		send(packed(t, m))
	})
	silent := packets(t, func(*dns.Msg, func([]byte)) {})
	dead := deadPort(t)
	for name, tt := range map[string]struct {
		servers []netip.AddrPort
		want    string
		within  time.Duration
	}{
		"refusing":           {[]netip.AddrPort{refusing, good}, "NOERROR", tryTime},
		"broken":             {[]netip.AddrPort{broken, good}, "NOERROR", tryTime},
		"giant":              {[]netip.AddrPort{giant, good}, "NOERROR", tryTime},
		"truncated":          {[]netip.AddrPort{truncated, good}, "NOERROR", tryTime},
		"dead":               {[]netip.AddrPort{dead, good}, "NOERROR", tryTime},
		"silent":             {[]netip.AddrPort{silent, good}, "NOERROR", 2 * tryTime},
		"only refusing":      {[]netip.AddrPort{refusing}, "SERVFAIL", tryTime},
		"only dead":          {[]netip.AddrPort{dead}, "SERVFAIL", tryTime},
		"only truncated":     {[]netip.AddrPort{truncated}, "SERVFAIL", tryTime},
		"only silent":        {[]netip.AddrPort{silent}, "SERVFAIL", lookupTime},
		"the fourth is good": {[]netip.AddrPort{dead, dead, refusing, good}, "SERVFAIL", tryTime},
		"none":               {nil, "SERVFAIL", tryTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			m := ask(t, view(t, open, tt.servers...), "www.example.com.", dns.TypeA)
			if got := dns.RcodeToString[m.Rcode]; got != tt.want {
				t.Errorf("the answer is %s", got)
			}
			if took := time.Since(start); took > tt.within {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// deadPort is a port at which nobody listens, and cannot: its socket takes packets of one
// other address only, so the kernel says of others that the port is unreachable.
func deadPort(t testing.TB) netip.AddrPort {
	t.Helper()
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

// A resolver that lost a packet is asked again.
func TestAskedAgain(t *testing.T) {
	first := true
	server := packets(t, func(q *dns.Msg, send func([]byte)) {
		if !first {
			send(packed(t, reply(q, "1.1.1.1")))
		}
		first = false
	})
	if m := ask(t, view(t, open, server), "www.example.com.", dns.TypeA); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
		t.Errorf("the answer is %v", m)
	}
}

// Over TCP a resolver can lie, too.
func TestStreamLies(t *testing.T) {
	frame := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	for name, answer := range map[string]func(q *dns.Msg) []byte{
		"nothing":     func(*dns.Msg) []byte { return nil },
		"half a size": func(*dns.Msg) []byte { return []byte{1} },
		"no message":  func(*dns.Msg) []byte { return []byte{0, 0} },
		"half":        func(q *dns.Msg) []byte { return frame(packed(t, reply(q, "6.6.6.6")))[:30] },
		"another id":  func(q *dns.Msg) []byte { m := reply(q, "6.6.6.6"); m.Id++; return frame(packed(t, m)) },
		"another name": func(q *dns.Msg) []byte {
			m := reply(q, "6.6.6.6")
			m.Question[0].Name = "a."
			return frame(packed(t, m))
		},
		"truncated too": func(q *dns.Msg) []byte { m := reply(q, "6.6.6.6"); m.Truncated = true; return frame(packed(t, m)) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, l := listen(t)
			answerPackets(t, conn, func(q *dns.Msg, send func([]byte)) {
				m := new(dns.Msg).SetReply(q)
				m.Truncated = true
				send(packed(t, m))
			})
			server := netip.MustParseAddrPort(l.Addr().String())
			var done sync.WaitGroup
			defer done.Wait()
			defer l.Close()
			done.Go(func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				b := make([]byte, 512)
				n, err := c.Read(b)
				q := new(dns.Msg)
				if err != nil || q.Unpack(b[2:n]) != nil {
					t.Errorf("the question is %x, %v", b[:n], err)
					return
				}
				c.Write(answer(q))
			})
			if m := ask(t, view(t, open, server), "www.example.com.", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
				t.Errorf("the answer is %v", m)
			}
		})
	}
}

func TestCache(t *testing.T) {
	u := serve(t, zone(t, "long.example.com. 600 A 1.1.1.1", "none.example.com. 600 TXT x", "zero.example.com. 0 A 1.1.1.1",
		"alias.example.com. 0 CNAME long.example.com."))
	v := view(t, open, u.addr)
	for _, tt := range []struct {
		name  string
		qtype uint16
		asked int64 // after two equal questions
	}{
		{"long.example.com.", dns.TypeA, 1},
		{"Long.example.com.", dns.TypeA, 0},
		{"long.example.com.", dns.TypeAAAA, 0}, // which is whether the name exists
		{"long.example.com.", dns.TypeTXT, 1},
		{"none.example.com.", dns.TypeA, 1},
		{"missing.example.com.", dns.TypeA, 1},
		{"zero.example.com.", dns.TypeA, 1},
		{"alias.example.com.", dns.TypeA, 1},
	} {
		before := u.asked.Load()
		ask(t, v, tt.name, tt.qtype)
		ask(t, v, tt.name, tt.qtype)
		if asked := u.asked.Load() - before; asked != tt.asked {
			t.Errorf("%s %s was asked for %d times", tt.name, dns.TypeToString[tt.qtype], asked)
		}
	}
	// Nobody learns from the time of an answer what another sandbox asked.
	before := u.asked.Load()
	p := compile(t, open, egress.Operator{})
	ask(t, v.resolver.View(func() *egress.Policy { return p }), "long.example.com.", dns.TypeA)
	if u.asked.Load() == before {
		t.Error("a sandbox was answered with what another one asked")
	}
}

func TestCacheBounds(t *testing.T) {
	var c cache
	now := time.Unix(1000, 0)
	for i := range 10 * maxCached {
		key := cacheKey{fmt.Sprint(i), dns.TypeA}
		c.put(key, cached{since: now, until: now.Add(time.Second)})
		if _, ok := c.get(key, now); !ok || len(c) > maxCached {
			t.Fatalf("%d entries, the last is there: %v", len(c), ok)
		}
	}
	if _, ok := c.get(cacheKey{fmt.Sprint(10*maxCached - 1), dns.TypeA}, now.Add(time.Second)); ok {
		t.Error("an entry was found after its time")
	}
	later := now.Add(time.Minute)
	c.put(cacheKey{"later", dns.TypeA}, cached{since: later, until: later.Add(time.Second)})
	if len(c) != 1 {
		t.Errorf("%d entries are left of those whose time is over", len(c)-1)
	}
	c.put(cacheKey{"large", dns.TypeA}, cached{message: make([]byte, maxCachedSize+1), since: later, until: later.Add(time.Second)})
	if len(c) != 1 {
		t.Error("a large answer was kept")
	}
}

func TestCachedLife(t *testing.T) {
	now := time.Unix(1000, 0)
	rr, err := dns.NewRR("a.example. 50 A 1.1.1.1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := keep(found{records: []dns.RR{rr}}, now)
	if err != nil || c.until != now.Add(50*time.Second) {
		t.Fatalf("kept until %v: %v", c.until, err)
	}
	for after, want := range map[time.Duration]uint32{0: 50, 20 * time.Second: 30, time.Hour: 0, -time.Hour: 50} {
		f, err := c.found(now.Add(after))
		if err != nil || f.records[0].Header().Ttl != want {
			t.Errorf("after %v: %v, %v", after, f.records, err)
		}
	}
}

// How long an answer is kept here is said by its records, within bounds.
func TestKept(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl  string
		kept time.Duration
	}{
		"no time": {"0", leastTime},
		"a time":  {"20", 20 * time.Second},
		"a day":   {"86400", maxTTL * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			rr, err := dns.NewRR("www.example.com. " + tt.ttl + " A 1.1.1.1")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				r := pipesOf(func(q *dns.Msg) (*dns.Msg, time.Duration) {
					asked++
					m := new(dns.Msg).SetReply(q)
					m.Answer = []dns.RR{rr}
					return m, 0
				})
				p := compile(t, open, egress.Operator{})
				v := r.View(func() *egress.Policy { return p })
				for _, at := range []struct {
					after time.Duration
					asked int
				}{{0, 1}, {tt.kept - 1, 1}, {1, 2}} {
					time.Sleep(at.after)
					m := ask(t, v, "www.example.com.", dns.TypeA)
					if ttl := m.Answer[0].Header().Ttl; asked != at.asked || ttl > min(maxTTL, rr.Header().Ttl) {
						t.Errorf("after %v it has %d seconds and was asked for %d times", at.after, ttl, asked)
					}
				}
			})
		})
	}
}

// Equal questions at the same time are one, and other sandboxes' do not wait for a
// sandbox's.
func TestConcurrentQuestions(t *testing.T) {
	release := make(chan struct{})
	u := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		<-release
		w.WriteMsg(reply(r, "1.1.1.1"))
	})
	v := view(t, open, u.addr)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if m := ask(t, v, "www.example.com.", dns.TypeA); m.Rcode != dns.RcodeSuccess {
				t.Errorf("the answer is %s", dns.RcodeToString[m.Rcode])
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	close(release)
	wait.Wait()
	if n := u.asked.Load(); n != 1 {
		t.Errorf("the resolver was asked %d times", n)
	}
}

// pipes is pipesOf with the same answer always.
func pipes(answer func(q *dns.Msg) time.Duration) *Resolver {
	return pipesOf(func(q *dns.Msg) (*dns.Msg, time.Duration) { return reply(q, "1.1.1.1"), answer(q) })
}

// pipesOf is a resolver whose connections exist in memory alone, so that time can be a
// test's own. answer is given each question and returns what is said and after how long;
// never if that is negative.
func pipesOf(answer func(q *dns.Msg) (*dns.Msg, time.Duration)) *Resolver {
	return New(Config{
		Upstream: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")} },
		Dial: func(context.Context, string, netip.AddrPort) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				b := make([]byte, 512)
				n, err := server.Read(b)
				q := new(dns.Msg)
				if err != nil || q.Unpack(b[:n]) != nil {
					return
				}
				said, after := answer(q)
				if after < 0 {
					io.Copy(io.Discard, server)
					return
				}
				time.Sleep(after)
				b, err = said.Pack()
				if err == nil {
					server.Write(b)
				}
			}()
			return client, nil
		},
	})
}

// A sandbox that asks without end takes a share and no more, of resolvers' and of ours.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most, all := 0, 0, 0
		r := pipes(func(*dns.Msg) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			now++
			all++
			most = max(most, now)
			time.AfterFunc(99*time.Millisecond, func() { mu.Lock(); now--; mu.Unlock() })
			return 100 * time.Millisecond
		})
		p := compile(t, open, egress.Operator{})
		flood, other := r.View(func() *egress.Policy { return p }), r.View(func() *egress.Policy { return p })
		const seconds = 10
		var wait sync.WaitGroup
		var answered, unanswered int
		for i := range seconds * 1000 {
			wait.Go(func() {
				m := send(t, flood, new(dns.Msg).SetQuestion(fmt.Sprintf("a%d.example.com.", i), dns.TypeA), packetSize)
				mu.Lock()
				defer mu.Unlock()
				if m == nil {
					unanswered++
				} else {
					answered++
				}
			})
			time.Sleep(time.Millisecond)
			if i%1000 == 999 {
				start := time.Now()
				if m := ask(t, other, fmt.Sprintf("b%d.example.com.", i), dns.TypeA); m.Rcode != 0 || time.Since(start) > 200*time.Millisecond {
					t.Errorf("another sandbox's question was answered with %s after %v", dns.RcodeToString[m.Rcode], time.Since(start))
				}
			}
		}
		wait.Wait()
		if most > asking+1 { // the other sandbox's is one
			t.Errorf("%d questions were asked at once", most)
		}
		if limit := askedAtOnce + (seconds+5)*askedPerSecond; all > limit {
			t.Errorf("%d questions were asked", all)
		}
		if limit := questionsAtOnce + (seconds+5)*questionsPerSecond; answered > limit || unanswered == 0 {
			t.Errorf("%d questions were answered, %d not", answered, unanswered)
		}
	})
}

// Also questions that nobody else is asked about have a share.
func TestShareOfQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := view(t, egress.Rules{})
		answered := 0
		for range 5000 {
			if send(t, v, new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA), packetSize) != nil {
				answered++
			}
			time.Sleep(time.Millisecond)
		}
		if want := questionsAtOnce + 5*questionsPerSecond; answered < want-1 || answered > want+1 {
			t.Errorf("%d questions of 5000 were answered", answered)
		}
	})
}

// However slow a resolver is, a question is answered before its program asks again, and
// what a caller waits for ends with its context.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := pipes(func(*dns.Msg) time.Duration { return -1 })
		p := compile(t, open, egress.Operator{})
		v := r.View(func() *egress.Policy { return p })
		var wait sync.WaitGroup
		for i := range 100 {
			wait.Go(func() {
				start := time.Now()
				m := ask(t, v, fmt.Sprintf("a%d.example.com.", i), dns.TypeA)
				if took := time.Since(start); m.Rcode != dns.RcodeServerFailure || took > lookupTime {
					t.Errorf("%s after %v", dns.RcodeToString[m.Rcode], took)
				}
			})
		}
		wait.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := v.Resolve(ctx, "www.example.com")
		if took := time.Since(start); err == nil || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		time.Sleep(2 * lookupTime) // until nothing of it is under way
	})
}

// Who dials waits for resolvers that are late, longer than a program for its answer.
func TestResolveWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		silent int // questions that are not answered
		ok     bool
		within time.Duration
	}{
		"at once": {0, true, 0},
		"late":    {5, true, resolveTime},
		"never":   {1 << 20, false, resolveTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				r := pipes(func(*dns.Msg) time.Duration {
					if asked++; asked <= tt.silent {
						return -1
					}
					return 0
				})
				p := compile(t, open, egress.Operator{})
				start := time.Now()
				_, err := r.View(func() *egress.Policy { return p }).Resolve(t.Context(), "www.example.com")
				if took := time.Since(start); (err == nil) != tt.ok || took > tt.within || !tt.ok && took <= lookupTime {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

func TestResolve(t *testing.T) {
	lines := []string{"both.example.com. 60 A 1.1.1.1", "both.example.com. 60 AAAA 2606:4700::1", "six.example.com. 60 AAAA 2606:4700::2",
		"private.example.com. 60 A 10.0.0.1", "alias.example.com. 60 CNAME both.example.com.", "text.example.com. 60 TXT x",
		"twice.example.com. 60 A 1.1.1.1", "twice.example.com. 60 A 1.1.1.1", "loop.example.com. 60 CNAME loop.example.com.",
		"host.cubby.internal. 60 A 6.6.6.6", "localhost. 60 A 6.6.6.6", "single. 60 A 6.6.6.6"}
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("many.example.com. 60 A 1.1.1.%d", i))
	}
	u := serve(t, zone(t, lines...))
	for _, tt := range []struct {
		name     string
		ipv6     bool
		want     string
		notFound bool
	}{
		{"both.example.com", false, "[1.1.1.1]", false},
		{"both.example.com", true, "[1.1.1.1 2606:4700::1]", false},
		{"Both.example.com.", false, "[1.1.1.1]", false},
		{"alias.example.com", true, "[1.1.1.1 2606:4700::1]", false},
		{"six.example.com", false, "[]", true},
		{"six.example.com", true, "[2606:4700::2]", false},
		{"private.example.com", false, "[10.0.0.1]", false}, // Policy.Dial says what may be dialled
		{"twice.example.com", false, "[1.1.1.1]", false},
		{"text.example.com", true, "[]", true},
		{"missing.example.com", true, "[]", true},
		{"loop.example.com", true, "[]", false},
		{egress.HostName, true, "[127.0.0.1]", false},
		{"localhost", true, "[]", true},
		{"a.localhost", true, "[]", true},
		{"single", true, "[]", true},
		{"1.1.1.1", true, "[]", true},
		{"0x7f.1", true, "[]", true},
		{"::1", true, "[]", true},
		{"a\x00.example.com", true, "[]", true},
		{"", true, "[]", true},
	} {
		v := view(t, egress.Rules{}, u.addr)
		v.resolver.config.IPv6 = tt.ipv6
		got, err := v.Resolve(t.Context(), tt.name)
		if fmt.Sprint(got) != tt.want || (err == nil) != (len(got) > 0) {
			t.Errorf("%q: %v, %v", tt.name, got, err)
		}
		var notFound *net.DNSError
		if err != nil && (!errors.As(err, &notFound) || notFound.IsNotFound != tt.notFound) {
			t.Errorf("%q: %#v", tt.name, err)
		}
	}
	v := view(t, egress.Rules{}, u.addr)
	if got, err := v.Resolve(t.Context(), "many.example.com"); err != nil || len(got) != maxAddresses {
		t.Errorf("%d addresses, %v", len(got), err)
	}
	if _, err := view(t, open).Resolve(t.Context(), "both.example.com"); !errors.Is(err, errNoResolver) {
		t.Errorf("without a resolver: %v", err)
	}
}

// One family's failure does not take the other's addresses away.
func TestResolveOneFamily(t *testing.T) {
	u := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		if r.Question[0].Qtype == dns.TypeAAAA {
			w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeServerFailure))
			return
		}
		w.WriteMsg(reply(r, "1.1.1.1"))
	})
	v := view(t, open, u.addr)
	v.resolver.config.IPv6 = true
	if got, err := v.Resolve(t.Context(), "www.example.com"); err != nil || fmt.Sprint(got) != "[1.1.1.1]" {
		t.Errorf("%v, %v", got, err)
	}
}
