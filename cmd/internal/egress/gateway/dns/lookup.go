package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// tryTime bounds one attempt at one resolver.
	tryTime = 1200 * time.Millisecond
	// lastLook is how long after its end an attempt looks for an answer that has come.
	lastLook = time.Millisecond
	// maxTries bounds the attempts of a lookup, and so the resolvers that it asks.
	maxTries = 3
	// maxForeign bounds the packets that are read while waiting for an answer.
	maxForeign = 64
	// maxPacket is the longest packet that is read. Resolvers are asked for at most packetSize.
	maxPacket = 4096

	// What is kept of a sandbox's lookups: entries, and bytes of each.
	maxCached     = 128
	maxCachedSize = 2048
	// absentTime is how long it is remembered that a name has no such record.
	absentTime = 5 * time.Second
	// leastTime is how long an answer is kept that must not be kept, so that many
	// connections to a name at once need one lookup. Inside it has no time at all.
	leastTime = time.Second
)

var (
	errNoResolver = errors.New("there is no resolver to ask")
	errBusy       = errors.New("too many names are being looked up")
	errNoAnswer   = errors.New("no answer came")
	errBad        = errors.New("the resolver's answer is malformed")
)

// rcodeError is a resolver's answer that it has none.
type rcodeError int

func (e rcodeError) Error() string { return "the resolver says " + dns.RcodeToString[int(e)] }

// lookup returns what the resolvers say of a canonical name, or what they said shortly
// before. Its records are the caller's own. Equal lookups that come at the same time are
// one.
func (v *View) lookup(ctx context.Context, name string, qtype uint16) (found, error) {
	key := cacheKey{name, qtype}
	v.mu.Lock()
	kept, ok := v.cache.get(key, time.Now())
	v.mu.Unlock()
	if ok {
		return kept.found(time.Now())
	}
	// Others may wait for the same answer: it does not end with the first one's context.
	flight := v.flights.DoChan(strconv.Itoa(int(qtype))+" "+name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime-lastLook)
		defer cancel()
		e, err := v.ask(ctx, name, qtype)
		if err != nil {
			v.resolver.config.Logger.DebugContext(ctx, "a name was not resolved", "error", err)
			return nil, err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.cache.put(key, e)
		return e, nil
	})
	select {
	case <-ctx.Done():
		return found{}, context.Cause(ctx)
	case r := <-flight:
		if r.Err != nil {
			return found{}, r.Err
		}
		return r.Val.(cached).found(time.Now())
	}
}

// lookupAgain is lookup that begins anew when no resolver answered in time, as one that
// is busy does not, for as long as another lookup ends within resolveTime.
func (v *View) lookupAgain(ctx context.Context, name string, qtype uint16) (found, error) {
	began := time.Now()
	for {
		f, err := v.lookup(ctx, name, qtype)
		if err == nil || ctx.Err() != nil || !isTimeout(err) || time.Since(began) > resolveTime-lookupTime {
			return f, err
		}
	}
}

func (v *View) ask(ctx context.Context, name string, qtype uint16) (cached, error) {
	if err := v.asked.Wait(ctx); err != nil {
		return cached{}, errBusy
	}
	for _, slots := range []chan struct{}{v.slots, v.resolver.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return cached{}, errBusy
		}
	}
	m, err := v.resolver.exchange(ctx, name, qtype)
	if err != nil {
		return cached{}, err
	}
	f, err := choose(m, name, qtype)
	if err != nil {
		return cached{}, err
	}
	return keep(f, time.Now())
}

// exchange asks the resolvers in their order until one says that there are records, or
// none. One that says nothing in time is asked once more if nobody else knows.
func (r *Resolver) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	servers := r.config.Upstream()
	if len(servers) == 0 {
		return nil, errNoResolver
	}
	servers = servers[:min(len(servers), maxTries)]
	var failed error
	silent := make([]netip.AddrPort, 0, len(servers))
	for range 2 {
		for _, server := range servers {
			m, err := r.try(ctx, server, name, qtype)
			if err == nil {
				return m, nil
			}
			failed = fmt.Errorf("ask %v: %w", server, err)
			if ctx.Err() != nil {
				return nil, failed
			}
			if isTimeout(err) {
				silent = append(silent, server)
			}
		}
		servers, silent = silent[:min(len(silent), maxTries-len(servers))], nil
	}
	return nil, failed
}

// try asks one resolver, over TCP if its answer has no room in a packet.
func (r *Resolver) try(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var id [2]byte
	rand.Read(id[:]) // never fails
	ask := &dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: binary.BigEndian.Uint16(id[:]), RecursionDesired: true},
		Question: []dns.Question{{Name: dns.Fqdn(name), Qtype: qtype, Qclass: dns.ClassINET}},
	}
	ask.SetEdns0(packetSize, false)
	packet, err := ask.Pack()
	if err != nil {
		return nil, err
	}
	b, err := r.roundTrip(ctx, "udp", server, ask, packet)
	if err == nil && binary.BigEndian.Uint16(b[2:])&bitTruncated != 0 {
		b, err = r.roundTrip(ctx, "tcp", server, ask, packet)
	}
	if err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		return nil, errBad
	}
	if m.Truncated {
		return nil, errBad
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, rcodeError(m.Rcode)
	}
	return m, nil
}

// roundTrip sends a question and returns the message that answers it: of the same id and
// with the same question.
func (r *Resolver) roundTrip(ctx context.Context, network string, server netip.AddrPort, ask *dns.Msg, packet []byte) ([]byte, error) {
	conn, err := r.config.Dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
			return nil, err
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil, err
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			return nil, err
		}
		if !answers(b, ask) {
			return nil, errBad
		}
		return b, nil
	}
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	b := make([]byte, maxPacket)
	for range maxForeign {
		n, err := conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// On a busy machine the answer may be here and this process late to see it.
			_ = conn.SetReadDeadline(time.Now().Add(lastLook))
			n, err = conn.Read(b)
		}
		if err != nil {
			return nil, err
		}
		if answers(b[:n], ask) {
			return b[:n], nil
		}
	}
	return nil, errNoAnswer
}

// answers says whether a message is the answer to the question.
func answers(b []byte, ask *dns.Msg) bool {
	if len(b) < headerSize || binary.BigEndian.Uint16(b) != ask.Id || binary.BigEndian.Uint16(b[4:]) != 1 {
		return false
	}
	if flags := binary.BigEndian.Uint16(b[2:]); flags&bitResponse == 0 || flags&bitsOpcode != 0 {
		return false
	}
	asked, _, err := readAsked(b)
	want := ask.Question[0]
	return err == nil && strings.EqualFold(asked.Name, want.Name) && asked.Qtype == want.Qtype && asked.Qclass == want.Qclass
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

// cache keeps what was looked up for a sandbox. What is larger than maxCachedSize is looked
// up again.
type cache map[cacheKey]cached

type cacheKey struct {
	name  string
	qtype uint16
}

// cached is an answer as bytes: smaller than as records, and nobody can change another's.
type cached struct {
	message []byte
	chain   int // how many of its records are aliases on the way
	since   time.Time
	until   time.Time
}

func keep(f found, now time.Time) (cached, error) {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: f.rcode}, Compress: true}
	ttl := uint32(maxTTL)
	for _, c := range f.chain {
		m.Answer = append(m.Answer, c)
	}
	m.Answer = append(m.Answer, f.records...)
	for _, rr := range m.Answer {
		ttl = min(ttl, rr.Header().Ttl)
	}
	lasts := max(leastTime, time.Duration(ttl)*time.Second)
	if len(f.records) == 0 {
		lasts = min(lasts, absentTime)
	}
	b, err := m.Pack()
	if err != nil {
		return cached{}, errBad
	}
	return cached{message: b, chain: len(f.chain), since: now, until: now.Add(lasts)}, nil
}

// found returns the answer, with the time that it may still be kept.
func (c cached) found(now time.Time) (found, error) {
	m := new(dns.Msg)
	if err := m.Unpack(c.message); err != nil || len(m.Answer) < c.chain {
		return found{}, errBad
	}
	age := uint32(max(0, now.Sub(c.since)) / time.Second)
	f := found{rcode: m.Rcode}
	for i, rr := range m.Answer {
		h := rr.Header()
		h.Ttl -= min(h.Ttl, age)
		if i >= c.chain {
			f.records = append(f.records, rr)
		} else if alias, ok := rr.(*dns.CNAME); ok {
			f.chain = append(f.chain, alias)
		}
	}
	return f, nil
}

func (c cache) get(key cacheKey, now time.Time) (cached, bool) {
	e, ok := c[key]
	return e, ok && now.Before(e.until)
}

// put keeps an answer. If there are too many, those whose time is over go, or any one.
func (c *cache) put(key cacheKey, e cached) {
	if len(e.message) > maxCachedSize {
		delete(*c, key)
		return
	}
	if *c == nil {
		*c = cache{}
	}
	if _, ok := (*c)[key]; !ok && len(*c) >= maxCached {
		for k, old := range *c {
			if !e.since.Before(old.until) {
				delete(*c, k)
			}
		}
		for k := range *c {
			if len(*c) < maxCached {
				break
			}
			delete(*c, k)
		}
	}
	(*c)[key] = e
}
