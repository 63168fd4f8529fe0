package host

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Sandbox is one live machine with its deadline. It is safe for concurrent use;
// the exported fields and what they point to are never changed.
type Sandbox struct {
	ID         string
	TeamID     string
	TemplateID string
	// PublicID stands for ID in host names that are shown to others: it leads to
	// the ports of the user's programs and nowhere else.
	PublicID string
	// Token is of envd; empty in a sandbox that is not secure.
	Token string
	// ContextToken says that the code interpreter's contexts ask for Token, too.
	ContextToken bool
	// TrafficToken is asked for at every port but envd's; empty means open.
	TrafficToken string
	// MaskRequestHost replaces the host name that a request came with; "${PORT}"
	// in it is the port. Empty means unchanged.
	MaskRequestHost     string
	Metadata            map[string]string
	AllowInternetAccess *bool             // as the client said; nil if it did not
	Network             *protocol.Network // as the client said; nil if it did not
	StartedAt           time.Time         // UTC, in microseconds
	Limits              protocol.Limits

	host      *Host
	hostToken string // of the host's own requests to the guest
	machine   engine.Machine
	timeout   time.Duration // that it was created with
	booted    time.Time     // when its boot began
	runs      atomic.Int32  // executions under way

	recording sync.Mutex // held while the recorder is told; taken before mu

	mu         sync.Mutex
	deadline   time.Time
	over       bool                    // the deadline has come, or the sandbox ends: it cannot be moved
	transports map[int]*http.Transport // by port
	logs       ring[LogEntry]
	samples    ring[Sample]

	deadlineMoved chan struct{} // tells watchLife
	ending        sync.Once
	endErr        error
	done          chan struct{} // closed when the machine is closed
	watchers      sync.WaitGroup
}

// Dial opens a stream to a port of the sandbox.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	return s.machine.Dial(ctx, port)
}

// maxTransports is how many ports keep idle connections; a guest that opens
// more is served, without.
const maxTransports = 64

// idleTime is how long a connection to a port is kept for the next request. The
// guest's own servers close none. Others do: gunicorn after 2 seconds, Node.js and
// uvicorn after 5, and a POST that meets the end of a connection cannot be tried
// again, so ours end first.
func idleTime(port int) time.Duration {
	if port == protocol.EnvdPort || port == protocol.CodeInterpreterPort {
		return time.Minute
	}
	return 1500 * time.Millisecond
}

// maxResponseHeader bounds the header of an answer, in bytes.
const maxResponseHeader = 256 << 10

// Transport sends HTTP requests to a port of the sandbox, over connections that
// are kept for the next one. The sandbox owns it.
func (s *Sandbox) Transport(port int) http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.transports[port]; ok {
		return t
	}
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) },
		DisableCompression: true, // bodies pass as they are
		// What a program in the sandbox says is bounded before it is looked at.
		MaxResponseHeaderBytes: maxResponseHeader,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        idleTime(port),
	}
	if len(s.transports) >= maxTransports {
		t.DisableKeepAlives = true
		return t
	}
	if s.transports == nil {
		s.transports = map[int]*http.Transport{}
	}
	s.transports[port] = t
	return t
}

// LimitsNotEnforced names the limits that do not hold on this host.
func (s *Sandbox) LimitsNotEnforced() []string { return s.machine.Unenforced() }

// Done is closed when nothing of the sandbox is left.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// runGrace is what a guest is given beyond an execution's time to end it itself:
// two seconds between its signals, and some for a busy machine.
const runGrace = 10 * time.Second

// BeginRun says that an execution has begun, and bounds it if timeout is
// positive: a guest that does not end it in time is not to be trusted, and the
// sandbox is killed. The caller calls the result once, when the execution ended.
func (s *Sandbox) BeginRun(timeout time.Duration) (end func()) {
	s.runs.Add(1)
	var backstop *time.Timer
	if timeout > 0 {
		backstop = time.AfterFunc(timeout+runGrace, func() {
			s.end(fmt.Sprintf("an execution went on %v past its %v and its guest did not stop it", runGrace, timeout))
		})
	}
	return func() {
		s.runs.Add(-1)
		if backstop != nil {
			backstop.Stop()
		}
	}
}
