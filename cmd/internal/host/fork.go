package host

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// MaxForks is how many copies of a sandbox can be made by one call, as in E2B's.
const MaxForks = 100

// Forked is one copy of a sandbox, or why there is none.
type Forked struct {
	Sandbox *Sandbox
	Err     error
}

// Fork makes n copies of a sandbox, which live for timeout; zero means as long as the
// sandbox was created with. One that runs is written to an image, during which nothing
// in it runs, and goes on with its connections; one that is paused stays so. Copies have
// its memory, files, rules and metadata, and ids and tokens of their own. The error
// means that there is no copy at all.
func (s *Sandbox) Fork(ctx context.Context, n int, timeout time.Duration) ([]Forked, error) {
	if n < 1 || n > MaxForks {
		return nil, invalid("count must be between 1 and %d", MaxForks)
	}
	var copies []Forked
	var source Record
	copyFrom := func(dir string, image manifest) error {
		t, err := s.host.templateOf(ctx, s.TeamID, image, image.FilesOnly)
		if err == nil {
			copies = s.host.copies(ctx, source, dir, image, t, n, timeout)
		}
		return err
	}
	running := false
	var scratch *scratch
	err := s.change(ctx, func(ctx context.Context) (err error) {
		s.mu.Lock()
		m, state := s.machine, s.record.State
		source = s.record // whose rules and variables an end takes away, which no copy may miss
		s.mu.Unlock()
		switch state {
		case StateRunning:
			running = true
			if !s.host.canPause() || !m.canBeSaved() {
				return cannotPause()
			}
			defer m.thaw()
			scratch, err = s.saveScratch(ctx, m)
			return s.notFoundIfEnded(err)
		case StatePaused:
			return nil
		}
		return wrongState(s.ID, state, state)
	})
	if err != nil {
		return nil, err
	}
	if running {
		defer scratch.remove()
		return copies, copyFrom(scratch.dir, scratch.image)
	}
	image, err := s.host.describe(s.ID)
	if err == nil {
		err = imageError(s.ID, s.host.cfg.Images.Use(ctx, s.ID, func(dir string) error { return copyFrom(dir, image) }))
	}
	if errors.Is(err, fs.ErrNotExist) && copies == nil && s.State() != StatePaused {
		return s.Fork(ctx, n, timeout) // it was resumed, or has ended, before the image was looked at
	}
	return copies, s.endIfDamaged(err)
}

// scratch is an image for the copies of one call: it is neither synced nor sealed.
type scratch struct {
	dir    string
	image  manifest
	remove func()
}

// saveScratch freezes the machine and writes it to a scratch.
func (s *Sandbox) saveScratch(ctx context.Context, m *machine) (*scratch, error) {
	if err := m.freeze(ctx); err != nil {
		return nil, err
	}
	used, err := m.Usage(ctx)
	if err != nil {
		return nil, own(err)
	}
	dir, remove, err := s.host.cfg.Images.Scratch(roomFor(used, false))
	if err != nil {
		return nil, imageError(s.ID, err)
	}
	if err := m.Machine.(engine.Checkpointer).Checkpoint(ctx, dir, engine.CheckpointOptions{MemoryOnly: true}); err != nil {
		remove()
		return nil, imageError(s.ID, err)
	}
	return &scratch{dir, m.manifest(used, false), remove}, nil
}

// copies makes copies of a sandbox, as source says that it was, from its image in dir.
func (h *Host) copies(ctx context.Context, source Record, dir string, image manifest, t Template, n int, timeout time.Duration) []Forked {
	if timeout == 0 {
		timeout = source.Lifecycle.Timeout
	}
	out := make([]Forked, n)
	var all sync.WaitGroup
	for i := range out {
		all.Go(func() {
			r := Record{
				Identity: source.Identity, Instance: Instance{Memory: 1, Files: 1},
				AllowInternetAccess: source.AllowInternetAccess, Network: source.Network,
			}
			r.ID, r.PublicID, r.Generation = newID("i"), newID("p"), 1
			r.Lifecycle.Timeout, r.Metadata = timeout, maps.Clone(r.Metadata)
			out[i].Sandbox, out[i].Err = h.launch(ctx, plan{
				record: r, name: r.TemplateID, template: t, memory: image.memory(image.FilesOnly),
				from: image.origin(protocol.RestoredCopy, image.FilesOnly),
				use: func(_ context.Context, start func(startMachine) error) error {
					return start(h.restoring(dir, image.FilesOnly))
				},
			})
		})
	}
	all.Wait()
	return out
}
