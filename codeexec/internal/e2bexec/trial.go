package e2bexec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// trial implements [codeexec.Trial].
type trial struct {
	x       *core
	id      string
	of      *sandbox // that the ways are copies of
	ways    []*way
	results []codeexec.TrialResult

	mu     sync.Mutex
	closed bool
}

// way is one copy, with the conversation as it is there.
type way struct {
	b *sandbox
	v *conversation
}

// Try implements [codeexec.Trier].
func (e *Executor) Try(ctx context.Context, id string, inputs []codeexec.CodeExecutionInput) (codeexec.Trial, error) {
	t, err := e.core.try(ctx, id, inputs)
	if err != nil {
		return nil, execerr.Wrap("try ways", cubby.CodeUnavailable, e.core.h.why(ctx, err))
	}
	return t, nil
}

func (x *core) try(ctx context.Context, id string, inputs []codeexec.CodeExecutionInput) (*trial, error) {
	h := x.h
	switch {
	case len(inputs) == 0:
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("there is no way to try")}
	case h.cfg.Fresh == FreshSandbox:
		return nil, &cubby.Error{Code: cubby.CodeUnimplemented, Err: errors.New("each execution has a sandbox of its own: there is no state to try ways from")}
	}
	if err := workdir.CheckID(id); err != nil {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	jobs := make([]*job, len(inputs))
	for i, in := range inputs {
		j, err := newJob(in)
		if err != nil {
			return nil, err
		}
		defer j.files.Close()
		jobs[i] = j
	}
	over, err := h.begin()
	if err != nil {
		return nil, err
	}
	defer over()
	ctx, cancel := h.join(ctx)
	defer cancel()
	e := &execution{x: x}
	done, err := e.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	t := &trial{x: x, id: id, of: e.b, results: make([]codeexec.TrialResult, len(inputs))}
	if err := t.copy(ctx, e, len(inputs)); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { t.results[i] = t.run(ctx, t.ways[i], j) })
	}
	all.Wait()
	return t, nil
}

// copy makes the copies of what e has entered.
func (t *trial) copy(ctx context.Context, e *execution, n int) error {
	began := time.Now()
	timeout := t.x.h.firstTimeout()
	copies, failed := e.b.sbx.Fork(ctx, n, cubby.WithTimeout(timeout))
	for _, sbx := range copies {
		b := &sandbox{h: t.x.h, sbx: sbx, owned: true, temporary: true, serial: e.b.serial, leaseEnd: began.Add(timeout), checked: time.Now()}
		v := newConversation(e.v.id)
		v.home, v.memory, v.used, v.ready, v.kernelsSought = b, e.v.memory, e.v.used, e.v.ready, e.v.kernelsSought
		v.kernels, v.lossTold, v.counts = maps.Clone(e.v.kernels), maps.Clone(e.v.lossTold), maps.Clone(e.v.counts)
		v.lost, v.lostFiles = e.v.lost, e.v.lostFiles
		t.ways = append(t.ways, &way{b, v})
	}
	if failed != nil {
		return failed
	}
	for _, w := range t.ways {
		info, err := w.b.sbx.Info(ctx)
		if err == nil {
			err = w.b.prepare(info, began)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run runs one way in its copy.
func (t *trial) run(ctx context.Context, w *way, j *job) (r codeexec.TrialResult) {
	own := &core{h: t.x.h, conversations: newConversations(t.x.h.cfg)}
	own.conversations.kernels = len(w.v.kernels)
	e := &execution{x: own, b: w.b, v: w.v}
	e.built.MaxOutput = t.x.h.cfg.MaxOutput
	release, err := w.b.lease()
	if err == nil {
		err = e.perform(ctx, j)
		release()
	}
	r.CodeExecutionResult = e.result()
	r.Instance.ID = t.of.sbx.ID() // where it is if it is kept
	r.Err = execerr.Wrap("execute code", cubby.CodeUnavailable, t.x.h.why(ctx, err))
	return r
}

// Results implements [codeexec.Trial].
func (t *trial) Results() []codeexec.TrialResult { return t.results }

// Keep implements [codeexec.Trial].
func (t *trial) Keep(ctx context.Context, i int) error {
	err := t.keep(ctx, i)
	return execerr.Wrap("keep a way", cubby.CodeUnavailable, t.x.h.why(ctx, err))
}

func (t *trial) keep(ctx context.Context, i int) error {
	if i < 0 || i >= len(t.ways) {
		return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("there is no way %d: there are %d, from 0", i, len(t.ways))}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return &cubby.Error{Code: cubby.CodeConflict, Err: errors.New("the trial is closed")}
	}
	h, w := t.x.h, t.ways[i]
	over, err := h.begin()
	if err != nil {
		return err
	}
	defer over()
	ctx, cancel := h.join(ctx)
	defer cancel()
	e := &execution{x: t.x}
	done, err := e.enter(ctx, t.id)
	if err != nil {
		return err
	}
	defer done()
	if e.b != t.of {
		return &cubby.Error{Code: cubby.CodeSandboxGone, Err: fmt.Errorf("the sandbox %s was replaced", t.of.sbx.ID())}
	}
	// The sandbox keeps its id by this, and with it its workspaces and whoever has it.
	snapshot, err := w.b.sbx.Snapshot(ctx)
	if err != nil {
		return err
	}
	err = e.b.sbx.Rollback(ctx, snapshot.ID)
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
	defer stop()
	if err := h.cfg.Client.DeleteSnapshot(ending, snapshot.ID); err != nil {
		h.log.Warn("a snapshot was not deleted", "snapshot", snapshot.ID, "err", err)
	}
	if err != nil {
		e.b.suspected()
		return err
	}
	if info, err := e.b.sbx.Info(ctx); err == nil {
		e.b.mu.Lock()
		e.b.instance = info.Instance
		e.b.mu.Unlock()
	}
	t.x.conversations.replace(e.v, w.v)
	t.closed = true
	return t.endCopies()
}

// replace gives a conversation the state that it has in a copy. The caller has its turn.
func (c *conversations) replace(v, with *conversation) {
	c.mu.Lock()
	c.kernels += len(with.kernels) - len(v.kernels)
	v.kernels = with.kernels
	c.mu.Unlock()
	v.memory, v.used, v.ready, v.kernelsSought = with.memory, with.used, with.ready, with.kernelsSought
	v.lossTold, v.counts, v.lost, v.lostFiles = with.lossTold, with.counts, with.lost, with.lostFiles
}

// Close implements [codeexec.Trial].
func (t *trial) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	return execerr.Wrap("close trial", cubby.CodeUnavailable, t.endCopies())
}

func (t *trial) endCopies() error {
	var errs []error
	for _, w := range t.ways {
		errs = append(errs, w.b.end())
	}
	return errors.Join(errs...)
}
