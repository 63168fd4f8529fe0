package e2bexec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
)

const (
	// renewTime bounds one renewal of a lease that nobody waits for.
	renewTime = 10 * time.Second
	// mostTrust is how long a sandbox that answered counts as alive without being
	// asked again; less with short leases.
	mostTrust = 2 * time.Second
	// clockSkew is how far apart this machine's clock and a server's may be.
	clockSkew = 5 * time.Minute
	// fileTime bounds each transfer of files, which may come over a slow network.
	fileTime = 5 * time.Minute
	// endTime bounds the waiting for what is under way when an executor closes.
	endTime = 15 * time.Second
)

// errClosed is the error of calls after Close, and of those that Close breaks off.
var errClosed = errors.New("the executor is closed")

func closedError() error { return &cubby.Error{Code: cubby.CodeConflict, Err: errClosed} }

// holder has the one sandbox that an executor has at a time. It makes or finds it, renews
// its lease while it is used, and notices that it is gone.
type holder struct {
	cfg  *Config
	log  *slog.Logger
	ctx  context.Context // ends with the executor
	stop context.CancelCauseFunc
	turn chan struct{} // held by who makes or checks the sandbox
	wg   sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	cur          *sandbox
	sandboxCount int // how many there have been, those of executors before this one included
}

// sandbox is one that the executor made or was attached to.
type sandbox struct {
	h         *holder
	sbx       *cubby.Sandbox
	owned     bool // made here
	temporary bool // for one execution, beside the executor's own
	serial    int  // numbers the executor's sandboxes, from 1; 0 if temporary
	have      codeexec.ResourceLimits
	endOfLife time.Time // when its whole life is over; zero: never by us
	engine    *posixws.Engine

	mu        sync.Mutex
	leaseEnd  time.Time      // when its lease is over
	checked   time.Time      // when it was last known to be alive
	suspect   bool           // something said that it is gone
	active    int            // leases
	idle      chan struct{}  // closed when the last lease is given back
	used      chan struct{}  // closed when there is one again; nil while there is
	instance  cubby.Instance // as the server said last
	memories  int            // how often its memory was lost
	rootReady bool           // the folder of the workspaces is there
}

func newHolder(cfg *Config) *holder {
	h := &holder{cfg: cfg, log: cfg.Logger, turn: make(chan struct{}, 1)}
	if cfg.Since != nil {
		h.sandboxCount = cfg.Since.Files
	}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	return h
}

// join makes a context that ends with ctx and with the executor.
func (h *holder) join(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// begin has close wait for what begins, until over is called.
func (h *holder) begin() (over func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, closedError()
	}
	h.wg.Add(1)
	return h.wg.Done, nil
}

// take waits for the turn. The caller gives it back by give.
func (h *holder) take(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ctx.Done():
		return closedError()
	}
	if h.ctx.Err() != nil {
		h.give()
		return closedError()
	}
	return nil
}

func (h *holder) give() { <-h.turn }

// acquire returns the sandbox, which was found to be alive, and a lease on it. It makes one if
// there is none, or if the one there was is gone and may be replaced.
func (h *holder) acquire(ctx context.Context) (*sandbox, func(), error) {
	if err := h.take(ctx); err != nil {
		return nil, nil, err
	}
	defer h.give()
	ctx, cancel := h.join(ctx)
	defer cancel()
	b := h.current()
	if b != nil {
		err := b.check(ctx)
		if err != nil && (!isGone(err) || !h.cfg.Recreate) {
			return nil, nil, err
		}
		if err != nil {
			h.retire(b)
			h.replacing(b.sbx.ID())
			b = nil
		}
	}
	if b == nil {
		var err error
		if b, err = h.create(ctx); err != nil {
			return nil, nil, err
		}
		if err := h.adopt(b); err != nil {
			return nil, nil, err
		}
	}
	release, err := b.lease()
	return b, release, err
}

// open makes or finds the first sandbox.
func (h *holder) open(ctx context.Context) error {
	if h.cfg.ID == "" {
		b, err := h.create(ctx)
		if err != nil {
			return err
		}
		return h.adopt(b)
	}
	b, err := h.attach(ctx)
	if isGone(err) && h.cfg.Recreate {
		h.replacing(h.cfg.ID)
		b, err = h.create(ctx)
	}
	if err != nil {
		return err
	}
	return h.adopt(b)
}

func (h *holder) replacing(old string) {
	h.log.Warn("the sandbox is gone; another takes its place", "sandbox_id", old)
	if h.cfg.OnRecreate != nil {
		h.cfg.OnRecreate(old)
	}
}

func (h *holder) current() *sandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cur
}

// adopt makes b the executor's sandbox. Where the executor is closed it ends b instead.
func (h *holder) adopt(b *sandbox) error {
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.sandboxCount++
		h.cur, b.serial = b, h.sandboxCount
	}
	h.mu.Unlock()
	if closed {
		return errors.Join(closedError(), b.end())
	}
	return nil
}

// retire has the executor forget a sandbox that is gone.
func (h *holder) retire(b *sandbox) {
	h.mu.Lock()
	if h.cur == b {
		h.cur = nil
	}
	h.mu.Unlock()
	if err := b.engine.Close(); err != nil {
		h.log.Warn("programs of a sandbox that is gone", "sandbox_id", b.sbx.ID(), "err", err)
	}
}

// firstTimeout is the timeout that a sandbox begins with; use extends it.
func (h *holder) firstTimeout() time.Duration {
	if h.cfg.SandboxTimeout > 0 {
		return min(h.cfg.IdleTimeout, h.cfg.SandboxTimeout)
	}
	return h.cfg.IdleTimeout
}

// create makes a sandbox, which the caller adopts or ends.
func (h *holder) create(ctx context.Context) (*sandbox, error) {
	timeout := h.firstTimeout()
	opts := append(h.cfg.Create[:len(h.cfg.Create):len(h.cfg.Create)],
		cubby.WithTimeout(timeout), cubby.WithLimits(sandboxLimits(h.cfg.Limits)))
	if h.cfg.Network != nil {
		opts = append(opts, cubby.WithNetwork(*h.cfg.Network))
	}
	opts = append(opts, cubby.WithPackages(h.cfg.Packages))
	began := time.Now()
	sbx, err := h.cfg.Client.Create(ctx, opts...)
	if cubby.CodeOf(err) == cubby.CodeUnimplemented && h.cfg.Limits != (codeexec.ResourceLimits{}) {
		err = fmt.Errorf("%w: %w", codeexec.ErrLimitNotEnforceable, err)
	}
	if err != nil {
		return nil, err
	}
	b := &sandbox{h: h, sbx: sbx, owned: true, leaseEnd: began.Add(timeout), checked: began}
	info, err := sbx.Info(ctx)
	if err == nil {
		err = b.prepare(info, began)
	}
	if err != nil {
		return nil, errors.Join(err, b.end())
	}
	return b, nil
}

// attach finds the sandbox of the configuration, which must run.
func (h *holder) attach(ctx context.Context) (*sandbox, error) {
	sbx, err := h.cfg.Client.Get(ctx, h.cfg.ID)
	if err != nil {
		return nil, gone(h.cfg.ID, err)
	}
	now := time.Now()
	info, err := sbx.Info(ctx)
	if err != nil {
		return nil, gone(h.cfg.ID, err)
	}
	if info.State == cubby.StatePaused && h.cfg.PauseAfter == 0 {
		return nil, pausedError(h.cfg.ID)
	}
	// This renews the lease, and brings tokens that the question did not. It resumes a
	// sandbox that is paused, which is why that was asked first.
	timeout := h.firstTimeout()
	if sbx, err = h.cfg.Client.Connect(ctx, h.cfg.ID, cubby.WithTimeout(timeout)); err != nil {
		return nil, gone(h.cfg.ID, err)
	}
	b := &sandbox{h: h, sbx: sbx, checked: now, leaseEnd: now.Add(timeout)}
	// A lease that is longer than ours stays as it is.
	if info.EndAt.Sub(now) > h.cfg.IdleTimeout+clockSkew {
		b.leaseEnd = info.EndAt
	}
	if err := b.prepare(info, now); err != nil {
		return nil, err
	}
	if h.cfg.Network != nil {
		if err := sbx.SetNetwork(ctx, *h.cfg.Network); err != nil {
			return nil, errors.Join(gone(h.cfg.ID, err), b.engine.Close())
		}
	}
	return b, nil
}

// prepare sets up b by what the server says of it, and fails if the limits that were asked
// for do not hold.
func (b *sandbox) prepare(info *cubby.Info, now time.Time) error {
	b.have, b.instance = held(info), info.Instance
	if err := checkLimits(b.h.cfg.Limits, b.have); err != nil {
		return err
	}
	if b.h.cfg.SandboxTimeout > 0 {
		b.endOfLife = now.Add(b.h.cfg.SandboxTimeout)
	}
	programs := b.have
	programs.FileSizeBytes = 0 // a program's own is none of what can be asked for
	engine, err := posixws.New(machine{b, b.h.cfg.User}, posixws.Config{
		Root: b.h.cfg.Root, Timeout: b.h.cfg.ExecutionTimeout, FileTimeout: fileTime, MaxOutput: b.h.cfg.MaxOutput, Have: programs,
		HostBase: b.h.cfg.HostBase, Describe: b.h.cfg.Describe, Instance: b.sbx.ID,
	})
	b.engine = engine
	return err
}

func pausedError(id string) error {
	return &cubby.Error{Code: cubby.CodePaused, Err: fmt.Errorf("the sandbox %s is paused", id), Hint: "Client.Connect of package cubby resumes it"}
}

// gone makes an error that says that a sandbox is not there one of its own code.
func gone(id string, err error) error {
	if cubby.CodeOf(err) != cubby.CodeNotFound {
		return err
	}
	e := &cubby.Error{Code: cubby.CodeSandboxGone, Err: fmt.Errorf("the sandbox %s is gone: %w", id, err)}
	if of, ok := errors.AsType[*cubby.Error](err); ok {
		e.Err, e.Hint = fmt.Errorf("the sandbox %s is gone: %w", id, of.Err), of.Hint
	}
	return e
}

func isGone(err error) bool { return cubby.CodeOf(err) == cubby.CodeSandboxGone }

// trust is how long a sandbox that has answered counts as alive.
func (h *holder) trust() time.Duration { return min(mostTrust, h.cfg.IdleTimeout/10) }

// doubt has the next use ask the server whether the sandbox is there, if err is of a kind
// that it may not be.
func (b *sandbox) doubt(err error) {
	switch cubby.CodeOf(err) {
	case cubby.CodeSandboxGone, cubby.CodePaused, cubby.CodeUnavailable, cubby.CodeNotFound:
		b.suspected()
	}
}

func (b *sandbox) suspected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.suspect = true
}

// check asks whether the sandbox is there, unless that is known, and renews its
// lease by that. Its errors: sandbox gone, paused, or that the server cannot be
// reached.
func (b *sandbox) check(ctx context.Context) error {
	b.mu.Lock()
	known := !b.suspect && time.Since(b.checked) < b.h.trust()
	b.mu.Unlock()
	if known {
		return nil
	}
	failed := b.renew(ctx)
	if failed == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	info, err := b.sbx.Info(ctx)
	switch {
	case err != nil:
		return gone(b.sbx.ID(), err)
	case info.State == cubby.StatePaused && b.h.cfg.PauseAfter > 0:
		return b.resume(ctx)
	case info.State == cubby.StatePaused:
		return pausedError(b.sbx.ID())
	}
	// It runs, and the server refused to renew the lease: code may use it until it ends.
	b.h.log.Warn("the sandbox's lease was not renewed", "sandbox_id", b.sbx.ID(), "err", failed)
	b.known()
	return nil
}

func (b *sandbox) known() {
	b.mu.Lock()
	b.checked, b.suspect = time.Now(), false
	b.mu.Unlock()
}

// renew makes the lease the idle timeout again, but never shorter than it is and
// never longer than the sandbox's whole life.
func (b *sandbox) renew(ctx context.Context) error {
	now := time.Now()
	d := b.h.cfg.IdleTimeout
	if !b.endOfLife.IsZero() {
		d = min(d, b.endOfLife.Sub(now))
	}
	b.mu.Lock()
	longer := now.Add(d).After(b.leaseEnd)
	b.mu.Unlock()
	if d <= 0 || !longer {
		// Nothing to move, but it may be gone.
		info, err := b.sbx.Info(ctx)
		switch {
		case err != nil:
			return gone(b.sbx.ID(), err)
		case info.State == cubby.StatePaused:
			return pausedError(b.sbx.ID())
		}
		b.known()
		return nil
	}
	if err := b.sbx.SetTimeout(ctx, d); err != nil {
		return err
	}
	b.mu.Lock()
	b.leaseEnd = now.Add(d)
	b.mu.Unlock()
	b.known()
	return nil
}

// hold returns a lease on b, for what was begun in it. It fails when another sandbox has
// replaced b.
func (h *holder) hold(ctx context.Context, b *sandbox) (release func(), err error) {
	if err := h.take(ctx); err != nil {
		return nil, err
	}
	defer h.give()
	if !b.temporary && h.current() != b {
		return nil, &cubby.Error{Code: cubby.CodeSandboxGone, Err: fmt.Errorf("the sandbox %s was replaced", b.sbx.ID())}
	}
	ctx, cancel := h.join(ctx)
	defer cancel()
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return b.lease()
}

// lease keeps the sandbox alive until release is called.
func (b *sandbox) lease() (release func(), err error) {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.h.closed {
		return nil, closedError()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active++; b.active == 1 {
		idle := make(chan struct{})
		b.idle = idle
		if b.used != nil {
			close(b.used)
			b.used = nil
		}
		b.h.wg.Go(func() { b.keep(idle) })
	}
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.active--; b.active == 0 {
			b.used = make(chan struct{})
			close(b.idle)
		}
	}), nil
}

// keep renews the lease while something is under way, and once when it is over.
func (b *sandbox) keep(idle <-chan struct{}) {
	tick := time.NewTicker(max(b.h.cfg.IdleTimeout/3, 200*time.Millisecond))
	defer tick.Stop()
	renew := func() {
		ctx, cancel := context.WithTimeout(b.h.ctx, renewTime)
		defer cancel()
		if err := b.renew(ctx); err != nil && b.h.ctx.Err() == nil {
			b.doubt(err)
			b.h.log.Warn("the sandbox's lease was not renewed", "sandbox_id", b.sbx.ID(), "err", err)
		}
	}
	for {
		select {
		case <-b.h.ctx.Done():
			return
		case <-tick.C:
			renew()
		case <-idle:
			b.mu.Lock()
			late := time.Since(b.checked) > b.h.trust() && !b.suspect
			b.mu.Unlock()
			if late {
				renew()
			}
			if b.h.cfg.PauseAfter > 0 && !b.temporary {
				b.pauseUnused()
			}
			return
		}
	}
}

// pauseUnused pauses the sandbox when nothing has used it for as long as it may be unused,
// unless it is used again before that.
func (b *sandbox) pauseUnused() {
	b.mu.Lock()
	used := b.used
	b.mu.Unlock()
	if used == nil {
		return
	}
	timer := time.NewTimer(b.h.cfg.PauseAfter)
	defer timer.Stop()
	select {
	case <-b.h.ctx.Done():
		return
	case <-used:
		return
	case <-timer.C:
	}
	// With the turn nobody takes a lease.
	if b.h.take(b.h.ctx) != nil {
		return
	}
	defer b.h.give()
	select {
	case <-used:
		return
	default:
	}
	if b.h.current() != b {
		return
	}
	b.suspected() // whatever becomes of it, the next use asks
	if err := b.sbx.Pause(b.h.ctx); err != nil {
		if b.h.ctx.Err() == nil {
			b.h.log.Warn("the sandbox was not paused", "sandbox_id", b.sbx.ID(), "err", err)
		}
		return
	}
	b.h.log.Info("the sandbox was paused", "sandbox_id", b.sbx.ID())
}

// resume has a paused sandbox go on: with its files alone where its memory cannot be
// restored any more. One whose whole life is over is ended instead, and gone.
func (b *sandbox) resume(ctx context.Context) error {
	began := time.Now()
	timeout := b.h.cfg.IdleTimeout
	if !b.endOfLife.IsZero() {
		timeout = min(timeout, b.endOfLife.Sub(began))
	}
	if timeout <= 0 {
		if err := b.sbx.Kill(ctx); err != nil {
			return err
		}
		return gone(b.sbx.ID(), &cubby.Error{Code: cubby.CodeNotFound, Err: errors.New("its time was over while it was paused")})
	}
	_, err := b.h.cfg.Client.Connect(ctx, b.sbx.ID(), cubby.WithTimeout(timeout))
	if cubby.CodeOf(err) == cubby.CodeIncompatible {
		b.h.log.Warn("the sandbox's memory is lost", "sandbox_id", b.sbx.ID(), "err", err)
		_, err = b.h.cfg.Client.Connect(ctx, b.sbx.ID(), cubby.WithTimeout(timeout), cubby.WithFilesOnly())
	}
	if err != nil {
		return gone(b.sbx.ID(), err)
	}
	info, err := b.sbx.Info(ctx)
	if err != nil {
		return gone(b.sbx.ID(), err)
	}
	b.mu.Lock()
	if info.Instance != b.instance {
		b.memories++
		b.rootReady = false
	}
	b.instance, b.leaseEnd = info.Instance, began.Add(timeout)
	b.mu.Unlock()
	b.known()
	b.h.log.Info("the sandbox was resumed", "sandbox_id", b.sbx.ID(), "dur", time.Since(began))
	return nil
}

// lostMemories is how often the sandbox's memory was lost while it was paused.
func (b *sandbox) lostMemories() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.memories
}

// busy reports whether somebody has a lease on the sandbox.
func (h *holder) busy() bool {
	b := h.current()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active > 0
}

// end ends the sandbox.
func (b *sandbox) end() error {
	b.engineClose()
	return b.sbx.Close()
}

// engineClose ends the programs of the workspaces. Once the executor's context has ended
// they are left alone instead.
func (b *sandbox) engineClose() {
	if b.engine == nil {
		return
	}
	if err := b.engine.Close(); err != nil {
		b.h.log.Debug("programs in a sandbox", "sandbox_id", b.sbx.ID(), "err", err)
	}
}

// close breaks off what is under way, waits for its end, for endTime at most, and returns
// the sandbox, which goes on. first says that no call came before this one; else there is no sandbox.
func (h *holder) close() (b *sandbox, first bool) {
	h.mu.Lock()
	again := h.closed
	h.closed = true
	h.mu.Unlock()
	if again {
		return nil, false
	}
	h.stop(closedError())
	h.turn <- struct{}{} // who is making a sandbox ends it now
	b = h.current()
	<-h.turn
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(endTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		h.log.Warn("what was under way does not end", "after", endTime)
	}
	if b != nil {
		b.engineClose()
	}
	return b, true
}
