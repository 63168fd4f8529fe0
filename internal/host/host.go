// Package host is a sandbox's life: create, time out, watch, kill. It knows
// neither HTTP routes nor any engine's types.
package host

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Template is a root filesystem that sandboxes boot from, with what runs inside.
type Template struct {
	Root  string   // folder that becomes "/"
	Guest []string // first process
	Env   []string // its environment
}

// Defaults of a sandbox that asks for nothing else.
var defaultLimits = protocol.Limits{MemoryMB: 512, CPUs: 1, DiskMB: 1024, PIDs: 256}

// Config configures a Host. The zero value of the optional fields is safe.
type Config struct {
	Engine   engine.Engine
	Template Template
	// Timeout is the lifetime of a sandbox that asks for none; zero means
	// MaxTimeout.
	Timeout time.Duration
	Logger  *slog.Logger // nil discards
}

// MaxTimeout is the longest life a sandbox may ask for.
const MaxTimeout = 24 * time.Hour

// tombstones is how many ended sandboxes are remembered for the reason of their
// end.
const tombstones = 1024

// Errors that callers decide on.
var (
	ErrNotFound        = errors.New("sandbox not found")
	ErrInvalid         = errors.New("invalid request")
	ErrNotEnforceable  = errors.New("limit cannot be enforced here")
	ErrVersionMismatch = errors.New("the guest is of another version")
)

// Host holds every sandbox of this process. It is safe for concurrent use.
type Host struct {
	cfg Config
	log *slog.Logger

	mu     sync.Mutex
	boxes  map[string]*Sandbox
	ended  map[string]string // reason by id
	order  []string          // of ended, oldest first
	closed bool
	busy   sync.WaitGroup // creates under way
	live   sync.WaitGroup // sandboxes of which something is left
}

// New returns a host.
func New(cfg Config) *Host {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = MaxTimeout
	}
	return &Host{cfg: cfg, log: cfg.Logger, boxes: map[string]*Sandbox{}, ended: map[string]string{}}
}

// CreateRequest is what a client asks for and what the server knows about it.
type CreateRequest struct {
	protocol.NewSandbox
	// TeamID owns the sandbox; empty in a private Cubby.
	TeamID string
	// Secure gives the sandbox an access token; without it whoever can route a
	// request to the sandbox may use it.
	Secure bool
	// DefaultTimeout is the lifetime if the client asks for none; zero means
	// the host's.
	DefaultTimeout time.Duration
}

// Create boots a sandbox and returns once its guest has answered.
func (h *Host) Create(ctx context.Context, req CreateRequest) (*Sandbox, error) {
	limits, asked, err := mergeLimits(req.Limits)
	if err != nil {
		return nil, err
	}
	timeout, err := lifetime(req.Timeout, h.cfg.Timeout)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errors.New("host is closing")
	}
	h.busy.Add(1)
	h.mu.Unlock()
	defer h.busy.Done()

	id := newID()
	s := &Sandbox{
		ID: id, TemplateID: req.TemplateID, Token: newToken(), Metadata: req.Metadata,
		StartedAt: time.Now(), Limits: limits, host: h, done: make(chan struct{}),
	}
	s.endAt = s.StartedAt.Add(timeout)
	env := slices.Concat(h.cfg.Template.Env, []string{"CUBBY_PIDS=" + strconv.Itoa(limits.PIDs), "CUBBY_WARM=" + strings.Join(req.Warm, ",")})
	s.machine, err = h.cfg.Engine.Start(ctx, engine.Spec{
		ID: id, Root: h.cfg.Template.Root, Args: h.cfg.Template.Guest, Env: env, Hostname: "cubby",
		Limits: engine.Limits{
			Memory: int64(limits.MemoryMB) << 20, CPUs: limits.CPUs, Disk: int64(limits.DiskMB) << 20, PIDs: limits.PIDs,
		},
	})
	if err != nil {
		return nil, err
	}
	for _, name := range s.machine.Unenforced() {
		if asked[name] {
			return nil, errors.Join(fmt.Errorf("%w: %s", ErrNotEnforceable, name), s.machine.Close())
		}
	}
	if err := s.greet(ctx, req.EnvVars); err != nil {
		return nil, errors.Join(fmt.Errorf("guest of %s: %w", id, err), s.machine.Close())
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errors.Join(errors.New("host is closing"), s.machine.Close())
	}
	h.boxes[id] = s
	h.live.Add(1)
	h.mu.Unlock()
	s.watchers.Go(s.watchLife)
	s.watchers.Go(s.watchMemory)
	go func() {
		<-s.done
		s.watchers.Wait()
		h.live.Done()
	}()
	h.log.Info("sandbox created", "sandbox_id", id, "dur", time.Since(s.StartedAt))
	return s, nil
}

// Get returns a live sandbox, or an error that wraps ErrNotFound and says why
// the sandbox ended, if it ever was.
func (h *Host) Get(id string) (*Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.boxes[id]; ok {
		return s, nil
	}
	if reason, ok := h.ended[id]; ok {
		return nil, &EndedError{ID: id, Reason: reason}
	}
	return nil, ErrNotFound
}

// EndedError says why a sandbox is gone. It wraps ErrNotFound.
type EndedError struct{ ID, Reason string }

func (e *EndedError) Error() string { return "sandbox " + e.ID + " ended: " + e.Reason }
func (e *EndedError) Unwrap() error { return ErrNotFound }

// Kill ends a sandbox and returns when nothing of it is left.
func (h *Host) Kill(id string) error {
	s, err := h.Get(id)
	if err != nil {
		return err
	}
	return s.end("it was killed")
}

// Close ends every sandbox and waits for whatever it started.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.busy.Wait()
	h.mu.Lock()
	boxes := make([]*Sandbox, 0, len(h.boxes))
	for _, s := range h.boxes {
		boxes = append(boxes, s)
	}
	h.mu.Unlock()
	errs := make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, s := range boxes {
		wg.Go(func() { errs[i] = s.end("the server was stopped") })
	}
	wg.Wait()
	h.live.Wait() // also those that had begun to end by themselves
	return errors.Join(errs...)
}

// bury moves a sandbox to the tombstones; false if it was there already.
func (h *Host) bury(s *Sandbox, reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[s.ID] != s {
		return false
	}
	delete(h.boxes, s.ID)
	h.ended[s.ID] = reason
	h.order = append(h.order, s.ID)
	if len(h.order) > tombstones {
		delete(h.ended, h.order[0])
		h.order = h.order[1:]
	}
	return true
}

func lifetime(seconds *int, byDefault time.Duration) (time.Duration, error) {
	if seconds == nil {
		return byDefault, nil
	}
	d := time.Duration(*seconds) * time.Second
	switch {
	case *seconds <= 0:
		return 0, fmt.Errorf("%w: Timeout must be greater than 0", ErrInvalid)
	case *seconds > int(MaxTimeout/time.Second):
		return 0, fmt.Errorf("%w: Timeout cannot be greater than %d hours", ErrInvalid, int(MaxTimeout.Hours()))
	}
	return d, nil
}

// mergeLimits fills what was not asked for, and says what was.
func mergeLimits(req *protocol.Limits) (protocol.Limits, map[string]bool, error) {
	limits, asked := defaultLimits, map[string]bool{}
	if req == nil {
		return limits, asked, nil
	}
	var errs []error
	pick := func(name string, value, low, high float64, set func()) {
		switch {
		case value == 0:
		case value < low || value > high || value != value:
			errs = append(errs, fmt.Errorf("%w: %s must be between %v and %v", ErrInvalid, name, low, high))
		default:
			asked[name] = true
			set()
		}
	}
	pick("memory", float64(req.MemoryMB), 16, 1<<20, func() { limits.MemoryMB = req.MemoryMB })
	pick("cpu", req.CPUs, 0.01, 1024, func() { limits.CPUs = req.CPUs })
	pick("disk", float64(req.DiskMB), 1, 1<<24, func() { limits.DiskMB = req.DiskMB })
	pick("pids", float64(req.PIDs), 8, 1<<16, func() { limits.PIDs = req.PIDs })
	return limits, asked, errors.Join(errs...)
}

// newID has the form of E2B's: "i" and twenty of [a-z0-9].
func newID() string {
	var b [13]byte
	rand.Read(b[:])
	return "i" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))[:20]
}

func newToken() string {
	var b [24]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
