// Package host is a sandbox's life: create, time out, watch, kill. It knows
// neither HTTP routes nor any engine's types.
package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/internal/engine"
)

// Template is a root filesystem that sandboxes boot from, with what runs inside.
type Template struct {
	Root  string   // folder that becomes "/"
	Guest []string // first process
	Env   []string // its environment
}

// Config configures a Host. The zero value of the optional fields is safe.
type Config struct {
	Engine   engine.Engine
	Template Template
	// TemplateAliases are names of Template beside those that every host knows.
	TemplateAliases []string
	// Timeout is the lifetime of a sandbox that asks for none; zero means
	// MaxTimeout.
	Timeout time.Duration
	// MaxSandboxes bounds the sandboxes that live or are being made; zero means
	// what the machine's memory carries, see defaultMaxSandboxes.
	MaxSandboxes int
	// Boots bounds how many sandboxes boot at the same time; zero means twice
	// the machine's processors. The others wait, at most QueueTime (zero means
	// half a minute, which leaves E2B's clients, who give up after one, time for
	// the boot).
	Boots     int
	QueueTime time.Duration
	Recorder  Recorder     // nil keeps no records
	Logger    *slog.Logger // nil discards
}

// MaxTimeout is the longest life a sandbox may ask for at a time.
const MaxTimeout = 24 * time.Hour

const (
	// bootTimeout bounds a boot, waiting for its turn not included. The slowest
	// seen, on a machine with twenty boots at a time, took four seconds.
	bootTimeout = time.Minute
	// failedFor is how long a failed create makes the host look unfit: then
	// somebody may try again.
	failedFor = 30 * time.Second
)

// Errors that callers decide on.
var (
	ErrNotFound        = errors.New("sandbox not found")
	ErrInvalid         = errors.New("invalid request")
	ErrUnknownTemplate = errors.New("unknown template")
	ErrNotEnforceable  = errors.New("limit cannot be enforced here")
	ErrVersionMismatch = errors.New("the guest is of another build")
	ErrBusy            = errors.New("no room for another sandbox now")
	ErrClosing         = errors.New("the server is stopping")
)

// Host holds every sandbox of this process. It is safe for concurrent use.
type Host struct {
	cfg   Config
	log   *slog.Logger
	boots chan struct{} // a place for each boot under way

	templates []string  // names that a sandbox can be made from
	started   time.Time // UTC

	ctx    context.Context // done when the host closes
	cancel context.CancelFunc

	mu       sync.Mutex
	boxes    map[string]*Sandbox
	public   map[string]*Sandbox            // by public id
	tokens   map[[sha256.Size]byte]*Sandbox // by the hash of the access token
	taken    int                            // sandboxes that live, are being made or are being taken away
	used     map[string]templateUse         // by template
	ended    map[string]tombstone           // by id
	order    []string                       // of ended, oldest first
	failedAt time.Time                      // of the last create that failed by the host's fault
	failure  error
	closed   bool
	busy     sync.WaitGroup // creates under way
	live     sync.WaitGroup // sandboxes of which something is left
}

// New returns a host.
func New(cfg Config) *Host {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = MaxTimeout
	}
	if cfg.MaxSandboxes == 0 {
		cfg.MaxSandboxes = DefaultMaxSandboxes()
	}
	if cfg.Boots == 0 {
		cfg.Boots = defaultBoots()
	}
	if cfg.QueueTime == 0 {
		cfg.QueueTime = 30 * time.Second
	}
	if cfg.Recorder == nil {
		cfg.Recorder = noRecords{}
	}
	h := &Host{
		cfg: cfg, log: cfg.Logger, boots: make(chan struct{}, cfg.Boots),
		templates: templateNames(cfg.TemplateAliases), started: time.Now().UTC(),
		boxes: map[string]*Sandbox{}, public: map[string]*Sandbox{}, tokens: map[[sha256.Size]byte]*Sandbox{}, used: map[string]templateUse{}, ended: map[string]tombstone{},
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Create boots a sandbox and returns once its guest has answered and the
// Recorder knows of it. The errors that wrap ErrInvalid, ErrUnknownTemplate,
// ErrNotEnforceable and ErrBusy are the caller's to act on.
func (h *Host) Create(ctx context.Context, req CreateRequest) (*Sandbox, error) {
	s, asked, err := h.plan(req)
	if err != nil {
		return nil, err
	}
	if err := h.admit(); err != nil {
		return nil, err
	}
	defer h.busy.Done()
	err = h.boot(ctx, s, req, asked)
	if err != nil {
		h.release()
		if req.Limits == nil { // else they may be what it could not live with
			h.remember(ctx, err)
		}
		return nil, err
	}
	h.log.Info("sandbox created", "sandbox_id", s.ID, "team", s.TeamID, "dur", time.Since(s.booted))
	return s, nil
}

// boot is Create with a place for the sandbox.
func (h *Host) boot(ctx context.Context, s *Sandbox, req CreateRequest, asked map[string]bool) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(ErrClosing) })()
	leave, err := h.queue(ctx)
	if err != nil {
		return err
	}
	defer leave()
	bootCtx, cancelBoot := context.WithTimeout(ctx, bootTimeout)
	defer cancelBoot()
	s.booted = time.Now()
	s.machine, err = h.cfg.Engine.Start(bootCtx, h.spec(s))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.machine.Close())
		}
	}()
	for _, name := range s.machine.Unenforced() {
		if asked[name] {
			return fmt.Errorf("%w: %s", ErrNotEnforceable, name)
		}
	}
	if err := s.greet(bootCtx, req.EnvVars, req.Warm); err != nil {
		return fmt.Errorf("guest of %s: %w", s.ID, err)
	}
	return h.handOut(ctx, s)
}

// handOut records a sandbox and makes it reachable, unless nobody wants it any
// more.
func (h *Host) handOut(ctx context.Context, s *Sandbox) error {
	// A client that gives up now must not leave it open whether there is a
	// record.
	recordCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	// Its life begins here: neither waiting nor booting is taken off its time.
	// Microseconds are what records and cursors of lists hold.
	now := time.Now()
	s.StartedAt, s.deadline = now.UTC().Truncate(time.Microsecond), now.Add(s.timeout)
	s.addLog(createdEntry(s.StartedAt, s.TemplateID))
	s.warnOfClosedNetwork()
	err := h.cfg.Recorder.Created(recordCtx, s.record())
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		h.mu.Lock()
		if h.closed {
			err = ErrClosing
		} else {
			h.boxes[s.ID], h.public[s.PublicID] = s, s
			h.used[s.TemplateID] = templateUse{h.used[s.TemplateID].count + 1, s.StartedAt}
			if s.Token != "" {
				h.tokens[sha256.Sum256([]byte(s.Token))] = s
			}
			h.live.Add(1)
		}
		h.mu.Unlock()
	}
	if err != nil {
		// Also if the record failed: it may be there nevertheless.
		return errors.Join(fmt.Errorf("sandbox %s is not handed out: %w", s.ID, err),
			h.cfg.Recorder.Ended(recordCtx, s.ID, time.Now().UTC(), "it was never handed out"))
	}
	s.watchers.Go(s.watchLife)
	s.watchers.Go(s.watchMemory)
	s.watchers.Go(s.watchUsage)
	go func() {
		<-s.done
		s.watchers.Wait()
		h.live.Done()
	}()
	return nil
}

// spec is the machine for a sandbox. Its environment is the template's: what belongs
// to the sandbox its guest is told by greet.
func (h *Host) spec(s *Sandbox) engine.Spec {
	return engine.Spec{
		ID: s.ID, Root: h.cfg.Template.Root, Args: h.cfg.Template.Guest, Env: slices.Clone(h.cfg.Template.Env), Hostname: "cubby",
		Limits: engine.Limits{
			Memory: int64(s.Limits.MemoryMB) << 20, CPUs: s.Limits.CPUs, Disk: int64(s.Limits.DiskMB) << 20, PIDs: s.Limits.PIDs,
		},
	}
}

// Get returns a live sandbox of any team, for the data plane, or an error that
// wraps ErrNotFound.
func (h *Host) Get(id string) (*Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.boxes[id]; ok {
		return s, nil
	}
	return nil, ErrNotFound
}

// GetPublic returns the live sandbox with a public id, or an error that wraps
// ErrNotFound.
func (h *Host) GetPublic(id string) (*Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.public[id]; ok {
		return s, nil
	}
	return nil, ErrNotFound
}

// Of returns a live sandbox of a team. For one of another team the error is the
// same as for one that never was; for one of this team that ended, here or in a
// server before this one, it is an *EndedError. Both wrap ErrNotFound.
func (h *Host) Of(ctx context.Context, teamID, id string) (*Sandbox, error) {
	h.mu.Lock()
	s, grave := h.boxes[id], h.ended[id]
	h.mu.Unlock()
	if s != nil && s.TeamID == teamID {
		return s, nil
	}
	if grave.reason != "" && grave.teamID == teamID {
		return nil, &EndedError{ID: id, At: grave.at, Reason: grave.reason}
	}
	if ending, ok := h.ending(ctx, teamID, id); ok {
		return nil, &EndedError{ID: id, At: ending.EndedAt, Reason: ending.Reason}
	}
	return nil, ErrNotFound
}

// Live returns every live sandbox, newest first; those of the same moment by id.
func (h *Host) Live() []*Sandbox {
	h.mu.Lock()
	all := make([]*Sandbox, 0, len(h.boxes))
	for _, s := range h.boxes {
		all = append(all, s)
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *Sandbox) int {
		if c := b.StartedAt.Compare(a.StartedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// ByToken returns the live sandbox that has an access token. The empty token is
// nobody's. How long it takes says nothing about any token: they are found by
// their hash.
func (h *Host) ByToken(token string) (*Sandbox, bool) {
	if token == "" {
		return nil, false
	}
	sum := sha256.Sum256([]byte(token))
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.tokens[sum]
	return s, ok
}

// Ready says why the host cannot make sandboxes now, or nil.
func (h *Host) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.room(); err != nil {
		return err
	}
	if h.failure != nil && time.Since(h.failedAt) < failedFor {
		return fmt.Errorf("the last sandbox could not be made: %w", h.failure)
	}
	return nil
}

// remember keeps what a create failed of, if that was the host's fault.
func (h *Host) remember(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, ErrNotEnforceable) || errors.Is(err, ErrBusy) || errors.Is(err, ErrClosing) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failedAt, h.failure = time.Now(), err
}

// Close ends every sandbox and waits for whatever it started. Creates that wait
// or boot are given up.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.busy.Wait()
	boxes := h.Live()
	errs := make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, s := range boxes {
		wg.Go(func() { errs[i] = s.end("the server was stopped") })
	}
	wg.Wait()
	h.live.Wait() // also those that had begun to end by themselves
	return errors.Join(errs...)
}

// newID has the form of E2B's, whose begin with "i": a letter and twenty of
// [a-z0-9].
func newID(letter string) string {
	var b [13]byte
	rand.Read(b[:])
	return letter + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))[:20]
}

func newToken() string {
	var b [24]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
