// Package host is a sandbox's life: create, time out, watch, pause, resume, kill. It
// knows neither HTTP routes nor any engine's types.
//
// A sandbox is a record and a state; its machine can be replaced. Every change of
// state is made by one function, Sandbox.become, which writes it to the record before
// it publishes it.
package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// Config configures a Host. The zero value of the optional fields is safe.
type Config struct {
	Engine    engine.Engine
	Templates Templates // nil is a Toolchain of nothing
	// Timeout is that of a sandbox that asks for none; zero means MaxTimeout.
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
	// Recorder keeps records beyond this host; nil keeps none: then nothing is
	// left when the host closes, also of paused sandboxes.
	Recorder Recorder
	// Key is what tokens are derived from: with the same one the next host knows
	// those of this one. Nil is a random one.
	Key *secret.Key
	// Images has what sandboxes are when they are paused, and snapshots. It belongs to
	// this host alone. Nil means that there are none.
	Images Images
	// KeepPaused is how long what is paused is kept, by the clock: then it ends. Zero
	// means for ever.
	KeepPaused time.Duration
	// KeepSnapshots is how many snapshots without a name a team keeps, the newest. Zero
	// means all.
	KeepSnapshots int
	// Snapshots knows what snapshots there are; nil keeps that in this process.
	Snapshots Snapshots
	// Networks gives sandboxes their way out, by rules of which Operator says what
	// the owner of the computer permits. Nil gives none: then every network is closed.
	Networks Networks
	Operator egress.Operator
	// OpenNetwork is for sandboxes whose client does not say what network it wants:
	// they may connect to everything that is public.
	OpenNetwork bool
	// Secrets are those that teams' rules refer to; nil: there are none.
	Secrets Secrets
	Logger  *slog.Logger // nil discards
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

// Host holds every sandbox of this process. It is safe for concurrent use.
type Host struct {
	cfg   Config
	log   *slog.Logger
	boots chan struct{} // a place for each boot under way

	started time.Time // UTC
	keeps   bool      // records outlive the host

	ctx    context.Context // done when the host closes
	cancel context.CancelFunc

	mu        sync.Mutex
	sandboxes map[string]*Sandbox            // that have not ended, by id
	public    map[string]*Sandbox            // by public id
	tokens    map[[sha256.Size]byte]*Sandbox // by the hash of the access token
	taken     int                            // sandboxes that have, are to have or had just now a machine
	carded    map[*Sandbox]struct{}          // that have a network card, or are about to get one
	used      map[string]templateUse         // by template
	waking    byTeam
	ended     map[string]tombstone // by id
	order     []string             // of ended, oldest first
	failedAt  time.Time            // of the last create that failed by the host's fault
	failure   error
	closed    bool
	sweeping  sync.WaitGroup
	busy      sync.WaitGroup // creates and resumes under way
	live      sync.WaitGroup // sandboxes of which something is left
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
	keeps := cfg.Recorder != nil
	if !keeps {
		cfg.Recorder = noRecords{}
	}
	if cfg.Snapshots == nil {
		cfg.Snapshots = &snapshotsInMemory{}
	}
	if cfg.Templates == nil {
		cfg.Templates = Toolchain(Template{})
	}
	if cfg.Key == nil {
		cfg.Key = secret.New()
	}
	h := &Host{
		cfg: cfg, log: cfg.Logger, boots: make(chan struct{}, cfg.Boots), started: time.Now().UTC(), keeps: keeps,
		sandboxes: map[string]*Sandbox{}, public: map[string]*Sandbox{}, tokens: map[[sha256.Size]byte]*Sandbox{},
		carded: map[*Sandbox]struct{}{}, used: map[string]templateUse{}, ended: map[string]tombstone{},
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if cfg.KeepPaused > 0 || cfg.KeepSnapshots > 0 {
		h.sweeping.Go(h.sweep)
	}
	return h
}

// insert makes a sandbox reachable. The caller holds h.mu.
func (h *Host) insert(s *Sandbox) {
	h.sandboxes[s.ID], h.public[s.PublicID] = s, s
	if s.Token != "" {
		h.tokens[sha256.Sum256([]byte(s.Token))] = s
	}
}

// forget undoes insert. The caller holds h.mu.
func (h *Host) forget(s *Sandbox) {
	delete(h.sandboxes, s.ID)
	delete(h.public, s.PublicID)
	if s.Token != "" {
		delete(h.tokens, sha256.Sum256([]byte(s.Token)))
	}
}

// Get returns a sandbox of any team that has not ended, for the data plane, or an
// error that wraps ErrNotFound.
func (h *Host) Get(id string) (*Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.sandboxes[id]; ok {
		return s, nil
	}
	return nil, ErrNotFound
}

// GetPublic returns the sandbox with a public id, as Get does, or an error that wraps
// ErrNotFound.
func (h *Host) GetPublic(id string) (*Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.public[id]; ok {
		return s, nil
	}
	return nil, ErrNotFound
}

// Of returns a team's sandbox that has not ended. For one of another team the error
// is the same as for one that never was; for one of this team that ended, here or in
// a server before this one, it is an *EndedError. Both wrap ErrNotFound.
func (h *Host) Of(ctx context.Context, teamID, id string) (*Sandbox, error) {
	h.mu.Lock()
	s, t := h.sandboxes[id], h.ended[id]
	h.mu.Unlock()
	if s != nil && s.TeamID == teamID {
		return s, nil
	}
	if t.reason != "" && t.teamID == teamID {
		return nil, End{ID: id, At: t.at, Reason: t.reason}.err()
	}
	if r, ok := h.recordOfEnded(ctx, id); ok && r.TeamID == teamID {
		return nil, End{ID: id, At: r.EndedAt, Reason: r.Reason}.err()
	}
	return nil, ErrNotFound
}

// Live returns every sandbox that has not ended, paused ones too, newest first; those
// of the same moment by id.
func (h *Host) Live() []*Sandbox {
	h.mu.Lock()
	all := make([]*Sandbox, 0, len(h.sandboxes))
	for _, s := range h.sandboxes {
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

// ByToken returns the sandbox that has an access token and has not ended. The empty token
// belongs to no sandbox. How long it takes does not depend on any token: they are found
// by their hash.
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
	if err := h.room(0); err != nil {
		return err
	}
	if h.failure != nil && time.Since(h.failedAt) < failedFor {
		return own(fmt.Errorf("the last sandbox could not be made: %w", h.failure))
	}
	return nil
}

// rememberFailure keeps what a create failed of, if that was the host's fault.
func (h *Host) rememberFailure(ctx context.Context, err error) {
	if ctx.Err() != nil || IsForClient(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failedAt, h.failure = time.Now(), err
}

// Close ends every sandbox that is not paused and waits for whatever it started; what
// is paused is left to the next host with the same records. Creates and resumes that
// wait or boot are cancelled.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.sweeping.Wait()
	h.busy.Wait()
	if n := h.ToKeep(); n > 0 {
		h.log.Info("pausing sandboxes for the next server", "sandboxes", n)
	}
	all := h.Live()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.putDown() })
	}
	wg.Wait()
	h.live.Wait() // also those that had begun to end by themselves
	return errors.Join(errs...)
}

// ToKeep is how many sandboxes Close has to pause, or has to wait for.
func (h *Host) ToKeep() (n int) {
	if !h.keeps || !h.canPause() {
		return 0
	}
	for _, s := range h.Live() {
		switch state := s.State(); {
		case state == StatePausing, state == StateRunning && s.Lifecycle.Pause:
			n++
		}
	}
	return n
}

// newID has the form of E2B's, whose begin with "i": a letter and twenty of
// [a-z0-9].
func newID(letter string) string {
	var b [13]byte
	rand.Read(b[:])
	return letter + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))[:20]
}
