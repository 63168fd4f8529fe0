package host

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of wakes. A sandbox that is woken again and again costs a restore each time; E2B
// gives one that was woken at least five minutes.
const (
	minWakeTimeout  = 5 * time.Minute
	wakesAtOnce     = 5 // of a sandbox, and then
	wakeEvery       = 10 * time.Second
	maxWakesPerTeam = 16 // under way
)

// wake is a resume for requests that wait for it.
type wake struct {
	done chan struct{} // closed when err is set
	err  error
}

// Wake returns when the sandbox runs. One that is paused and was created with
// auto-resume is resumed, once for all who wait; for others the error is that they are
// paused. The caller has seen a token that opens what is asked for. The code is
// fault.RateLimited where the sandbox, or its team's, are woken too often, and where
// there is no room.
func (s *Sandbox) Wake(ctx context.Context) error {
	w, err := s.beginWake()
	if w == nil || err != nil {
		return err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginWake returns the wake that is under way, or begins one; nil if the sandbox runs.
func (s *Sandbox) beginWake() (*wake, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending != nil || s.left:
		return nil, ErrNotFound
	case s.wake != nil:
		return s.wake, nil
	case s.record.State == StateRunning:
		return nil, nil
	case !s.Lifecycle.AutoResume:
		return nil, wrongState(s.ID, s.record.State, s.record.State)
	case !s.wakes.Allow():
		return nil, busy(wakeEvery, "sandbox %s is woken too often", s.ID)
	case !s.host.waking.enter(s.TeamID):
		return nil, busy(time.Second, "%d sandboxes of this team are being woken", maxWakesPerTeam)
	}
	w := &wake{done: make(chan struct{})}
	s.wake = w
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		defer s.host.waking.leave(s.TeamID)
		// Whoever asked first may have gone; others wait, too.
		w.err = s.alone(s.ctx, func() error {
			if s.State() == StateRunning {
				return nil
			}
			return s.resume(s.ctx, ResumeOptions{Timeout: max(s.Lifecycle.Timeout, minWakeTimeout)})
		})
		s.mu.Lock()
		s.wake = nil
		s.mu.Unlock()
		close(w.done)
	}()
	return w, nil
}

func newWakes() *rate.Limiter { return rate.NewLimiter(rate.Every(wakeEvery), wakesAtOnce) }

// byTeam counts what is under way for each team. The zero value is ready.
type byTeam struct {
	mu    sync.Mutex
	count map[string]int
}

func (b *byTeam) enter(team string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count[team] >= maxWakesPerTeam {
		return false
	}
	if b.count == nil {
		b.count = map[string]int{}
	}
	b.count[team]++
	return true
}

func (b *byTeam) leave(team string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count[team]--; b.count[team] == 0 {
		delete(b.count, team)
	}
}
