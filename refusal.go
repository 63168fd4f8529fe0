package cubby

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Refusal is something that code wanted to connect to and that its [Network] does not
// allow.
type Refusal struct {
	// Host is a name or an address. Port is 0 where only the name was asked for.
	Host string
	Port int
	// Reason says why, and how to open it.
	Reason string
	// Allow is the entry of Network.Allow that opens it; empty where the owner of the
	// server alone can do that, or nobody.
	Allow string
}

const (
	// refusalTimeout bounds the question what was refused: code has failed already, and
	// a server that is slow must not hold that up.
	refusalTimeout = time.Second
	maxRefusals    = 10
	// refusalDelay is how much later a flow may be told than the code knows of it.
	refusalDelay = 10 * time.Millisecond
)

// refusals asks what was refused in the time before; a server that cannot tell has
// refused nothing.
func (s *Sandbox) refusals(ctx context.Context, before time.Duration) []Refusal {
	if !s.cubby || ctx.Err() != nil {
		return nil
	}
	began := time.Now().Add(-before)
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	// The two clocks may differ: a time is said by how long ago it was.
	query := url.Values{"last": {strconv.FormatInt((before+refusalDelay).Milliseconds()+1, 10)}}
	var answer protocol.Flows
	if err := s.client.control(ctx, http.MethodGet, "/sandboxes/"+s.id+"/network", query, nil, &answer); err != nil {
		s.client.log.Debug("what the network refused is not known", "sandbox_id", s.id, "err", err)
		return nil
	}
	old := s.told.before(began, answer.Flows)
	var out []Refusal
	seen := map[string]bool{}
	for _, f := range answer.Flows {
		if f.Allowed || !f.Time.After(old) {
			continue
		}
		host, port, err := net.SplitHostPort(f.Addr)
		if err != nil {
			continue
		}
		r := Refusal{Host: host, Reason: f.Reason, Allow: f.Entry}
		if f.Host != "" {
			r.Host = f.Host
		}
		if f.Host == "" || port != "53" {
			r.Port, _ = strconv.Atoi(port)
		}
		key := net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
		if seen[key] || len(out) == maxRefusals {
			continue
		}
		seen[key] = true
		out = append(out, r)
	}
	return out
}

// toldFlows remembers what the last question about flows was told, so that code which runs
// right after it is not told the same.
type toldFlows struct {
	mu     sync.Mutex
	asked  time.Time // when the last answer came
	newest time.Time // of its flows, by the server's clock
}

// before is the time of the newest flow that was told before some code began; zero if none
// was. It remembers flows, which were told just now.
func (t *toldFlows) before(began time.Time, flows []protocol.Flow) (newest time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked.Before(began) {
		newest = t.newest
	}
	t.asked = time.Now()
	for _, f := range flows {
		if f.Time.After(t.newest) {
			t.newest = f.Time
		}
	}
	return newest
}
