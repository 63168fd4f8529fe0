package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Snapshot is a sandbox's memory and files, or its files alone, at a moment. Sandboxes
// are made of it as of a template.
type Snapshot struct {
	ID        string // ^s[a-z0-9]{20}$
	TeamID    string
	SandboxID string // that it was made of
	// Names are "name:tag", sorted. Each means one snapshot of the team, the newest
	// that it was given to.
	Names     []string
	FilesOnly bool
	Limits    protocol.Limits
	Env       map[string]string // secret: of sandboxes that are made of it, unless they say otherwise
	Size      int64             // bytes on the disk
	CreatedAt time.Time         // UTC, in microseconds
}

// Ref is the reference of a snapshot that clients are shown: a name, or its id with the
// tag that all have.
func (s Snapshot) Ref() string {
	if len(s.Names) > 0 {
		return s.Names[0]
	}
	return s.ID + ":" + DefaultTag
}

// Snapshots knows which snapshots there are. Its methods are called concurrently. Their
// errors wrap ErrNotFound where there is no such snapshot; any other means that it is
// unknown.
type Snapshots interface {
	// PutSnapshot records a snapshot. Its names are taken from those that had them.
	PutSnapshot(ctx context.Context, s Snapshot) error
	// Snapshot returns the one of a team that a reference means: a name, which means
	// its tag "default", a name with a tag, or an id, with that tag or without.
	Snapshot(ctx context.Context, teamID, ref string) (Snapshot, error)
	// ListSnapshots returns a team's, newest first, those of the same moment by id.
	ListSnapshots(ctx context.Context, teamID string) ([]Snapshot, error)
	// AllSnapshots returns those of all teams.
	AllSnapshots(ctx context.Context) ([]Snapshot, error)
	// DeleteSnapshot forgets a team's by its id.
	DeleteSnapshot(ctx context.Context, teamID, id string) error
}

// DefaultTag is the tag of a name that comes without one, as in E2B's.
const DefaultTag = "default"

var (
	snapshotID   = regexp.MustCompile(`^s[a-z0-9]{20}$`)
	snapshotName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,127}$`)
	snapshotTag  = regexp.MustCompile(`^[a-z0-9_.-]{1,128}$`)
)

// SplitRef returns the two parts of a reference to a snapshot, the tag in lower case.
func SplitRef(ref string) (name, tag string) {
	name, tag, tagged := strings.Cut(ref, ":")
	if !tagged {
		tag = DefaultTag
	}
	return name, strings.ToLower(tag)
}

// IsSnapshotID reports whether a reference's name is an id.
func IsSnapshotID(name string) bool { return snapshotID.MatchString(name) }

// SnapshotRequest is what a client wants of a snapshot.
type SnapshotRequest struct {
	// Name is a name, with or without a tag; empty makes one without.
	Name string
	// FilesOnly leaves the memory out.
	FilesOnly bool
}

// Snapshot makes a snapshot of a sandbox that runs, which goes on with its connections,
// or of one that is paused. Nothing in it runs while the image is written.
func (s *Sandbox) Snapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	h := s.host
	names, err := h.namesOf(ctx, s.TeamID, req.Name)
	if err != nil {
		return Snapshot{}, err
	}
	snapshot := Snapshot{
		ID: newID("s"), TeamID: s.TeamID, SandboxID: s.ID, Names: names, Limits: s.Limits, Env: s.Env,
		FilesOnly: req.FilesOnly,
	}
	err = s.change(ctx, func(ctx context.Context) error {
		if err := s.saveAs(ctx, snapshot.ID, &snapshot.FilesOnly); err != nil {
			return err
		}
		var err error
		if snapshot.Size, err = h.cfg.Images.Describe(snapshot.ID, nil); err == nil {
			snapshot.CreatedAt = micros(time.Now())
			err = h.cfg.Snapshots.PutSnapshot(ctx, snapshot)
		}
		if err != nil {
			return errors.Join(own(err), h.removeImage(snapshot.ID))
		}
		s.mu.Lock()
		s.like = snapshot.ID
		s.mu.Unlock()
		return nil
	})
	if err != nil {
		return Snapshot{}, err
	}
	s.addLog(LogEntry{snapshot.CreatedAt, levelInfo, "Snapshot created", map[string]string{"snapshot": snapshot.Ref()}})
	if h.cfg.KeepSnapshots > 0 {
		all, err := h.ListSnapshots(ctx, s.TeamID)
		if err = errors.Join(err, h.trim(ctx, all)); err != nil {
			h.log.Warn("snapshots that are not to be kept", "team", s.TeamID, "err", err) // the next sweep tries again
		}
	}
	h.log.Info("snapshot created", "sandbox_id", s.ID, "team", s.TeamID, "snapshot", snapshot.ID, "bytes", snapshot.Size)
	return snapshot, nil
}

// saveAs writes the sandbox to an image beside what it is. The caller runs in alone.
// filesOnly becomes true for a paused one that has no memory.
func (s *Sandbox) saveAs(ctx context.Context, image string, filesOnly *bool) error {
	h := s.host
	s.mu.Lock()
	m, state := s.machine, s.record.State
	s.mu.Unlock()
	switch state {
	case StateRunning:
		if !h.canPause() || !m.canBeSaved() {
			return cannotPause()
		}
		err := s.save(ctx, m, image, s.alike(), *filesOnly)
		m.thaw()
		return s.notFoundIfEnded(err)
	case StatePaused:
		paused, err := h.describe(s.ID)
		if err != nil {
			return s.endIfDamaged(err)
		}
		if *filesOnly && !paused.FilesOnly {
			return invalid("sandbox %s is paused with its memory: a snapshot of its files alone can be made while it runs", s.ID)
		}
		*filesOnly = paused.FilesOnly
		return s.endIfDamaged(imageError(s.ID, h.cfg.Images.Copy(ctx, s.ID, image, paused)))
	}
	return wrongState(s.ID, state, state)
}

// namesOf checks a name for a snapshot.
func (h *Host) namesOf(ctx context.Context, teamID, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	name, tag := SplitRef(text)
	switch {
	case !snapshotName.MatchString(name):
		return nil, invalid("snapshot name '%s': lower-case letters, digits, '-' and '_' are possible, at most 128", clip.Ellipsis(name, maxQuoted))
	case !snapshotTag.MatchString(tag):
		return nil, invalid("tag '%s': lower-case letters, digits, '-', '_' and '.' are possible, at most 128", clip.Ellipsis(tag, maxQuoted))
	case IsSnapshotID(name):
		return nil, invalid("snapshot name '%s' has the form of an id", name)
	}
	if _, err := h.cfg.Templates.Resolve(ctx, teamID, name); err == nil {
		return nil, invalid("'%s' is the name of a template", name)
	} else if fault.CodeOf(err) != fault.NotFound {
		return nil, err
	}
	return []string{name + ":" + tag}, nil
}

// planOfSnapshot is a sandbox that is to be made of a snapshot.
func (h *Host) planOfSnapshot(ctx context.Context, snapshot Snapshot) (plan, error) {
	image, err := h.describe(snapshot.ID)
	if err != nil {
		return plan{}, h.unlessDeleted(ctx, snapshot, err)
	}
	t, err := h.templateOf(ctx, snapshot.TeamID, image, image.FilesOnly)
	if err != nil {
		return plan{}, err
	}
	t.Limits = snapshot.Limits
	p := plan{
		name: snapshot.Ref(), template: t, memory: image.memory(image.FilesOnly),
		from: image.origin(protocol.RestoredCopy, image.FilesOnly),
	}
	p.record.Env = snapshot.Env
	p.use = func(ctx context.Context, start func(startMachine) error) error {
		err := h.cfg.Images.Use(ctx, snapshot.ID, func(dir string) error { return start(h.restoring(dir, image.FilesOnly)) })
		return h.unlessDeleted(ctx, snapshot, imageError(snapshot.ID, err))
	}
	return p, nil
}

// unlessDeleted is err, of a use of a snapshot's image, or that there is no such snapshot
// if it was deleted since it was looked up.
func (h *Host) unlessDeleted(ctx context.Context, s Snapshot, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, gone := h.cfg.Snapshots.Snapshot(ctx, s.TeamID, s.ID); !errors.Is(gone, ErrNotFound) {
		return err
	}
	return unknownSnapshot(s.Ref())
}

func unknownSnapshot(ref string) error {
	return &fault.Error{Code: fault.NotFound, Err: fmt.Errorf("snapshot '%s' not found", ref)}
}

// ListSnapshots returns a team's snapshots, newest first; those of the same moment by id.
func (h *Host) ListSnapshots(ctx context.Context, teamID string) ([]Snapshot, error) {
	return h.cfg.Snapshots.ListSnapshots(ctx, teamID)
}

// DeleteSnapshot removes a team's snapshot by a reference. Sandboxes that are being made
// of it are made; when it returns the image is gone from the disk. The error wraps
// ErrNotFound if there is no such snapshot.
func (h *Host) DeleteSnapshot(ctx context.Context, teamID, ref string) error {
	snapshot, err := h.cfg.Snapshots.Snapshot(ctx, teamID, ref)
	if err != nil {
		return err
	}
	// First the record: an image of no snapshot is removed by the next start.
	if err := h.cfg.Snapshots.DeleteSnapshot(ctx, teamID, snapshot.ID); err != nil {
		return err
	}
	h.log.Info("snapshot deleted", "team", teamID, "snapshot", snapshot.ID)
	if err := h.removeImage(snapshot.ID); err != nil {
		return own(fmt.Errorf("snapshot %s is deleted, but not all of its image could be removed: %w", ref, err))
	}
	return nil
}

// snapshotsInMemory are those of a host without records.
type snapshotsInMemory struct {
	mu  sync.Mutex
	all map[string]Snapshot // by id
}

func (m *snapshotsInMemory) PutSnapshot(_ context.Context, s Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, other := range m.all {
		if other.TeamID == s.TeamID {
			other.Names = slices.DeleteFunc(slices.Clone(other.Names), func(name string) bool { return slices.Contains(s.Names, name) })
			m.all[id] = other
		}
	}
	if m.all == nil {
		m.all = map[string]Snapshot{}
	}
	m.all[s.ID] = s
	return nil
}

func (m *snapshotsInMemory) Snapshot(_ context.Context, teamID, ref string) (Snapshot, error) {
	name, tag := SplitRef(ref)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.all {
		if s.TeamID == teamID && (s.ID == name && tag == DefaultTag || slices.Contains(s.Names, name+":"+tag)) {
			return s, nil
		}
	}
	return Snapshot{}, ErrNotFound
}

func (m *snapshotsInMemory) ListSnapshots(ctx context.Context, teamID string) ([]Snapshot, error) {
	all, err := m.AllSnapshots(ctx)
	return slices.DeleteFunc(all, func(s Snapshot) bool { return s.TeamID != teamID }), err
}

func (m *snapshotsInMemory) AllSnapshots(context.Context) ([]Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Snapshot, 0, len(m.all))
	for _, s := range m.all {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Snapshot) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

func (m *snapshotsInMemory) DeleteSnapshot(_ context.Context, teamID, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.all[id]; !ok || s.TeamID != teamID {
		return ErrNotFound
	}
	delete(m.all, id)
	return nil
}
