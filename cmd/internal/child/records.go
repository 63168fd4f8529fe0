package child

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/cmd/internal/vault"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// openStore takes the data folder, with its key, for this server alone.
func (p *private) openStore(ctx context.Context, dir string) error {
	st, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	p.store = st
	if p.unlock, err = st.LockServer(ctx); err != nil {
		return err
	}
	if p.key, err = st.Key(ctx); err != nil {
		return err
	}
	return st.Prune(ctx)
}

// openVault opens the teams' secrets.
func (p *private) openVault(ctx context.Context, key *secret.Key) (err error) {
	if key == nil {
		if key, err = secret.Parse(p.key.Seed("secrets")); err != nil {
			return err
		}
	}
	p.vault, err = vault.Open(ctx, p.store, key, func(ctx context.Context, team, name string) error {
		return p.host.SecretChanged(ctx, team, name) // nobody calls before there is a host
	})
	return err
}

// takeUp ends the records of sandboxes that died with a server before this one, and
// brings back those that it had paused.
func (p *private) takeUp(ctx context.Context) error {
	found, err := p.host.Recover(ctx)
	if err != nil {
		return fault.Within("records of earlier sandboxes", fault.Unavailable, err)
	}
	p.recovered = found.Ended
	return nil
}

// firstKey makes the first team and its key, once. It comes last, when nothing
// else can keep the server from starting: a key is shown once, and one made by a
// start that failed would never be shown.
func (p *private) firstKey(ctx context.Context) (err error) {
	if _, p.newKey, _, err = p.store.Bootstrap(ctx); err != nil {
		return fault.Within("first team and key", fault.Unavailable, err)
	}
	return nil
}

// keys is server.Keys over the store.
type keys struct{ store *store.Store }

func (k keys) TeamOfKey(ctx context.Context, secret string) (string, error) {
	team, err := k.store.TeamOfKey(ctx, secret)
	if errors.Is(err, store.ErrNotFound) {
		return "", host.ErrNotFound
	}
	return team, err
}

// recorder is host.Recorder over the store. What is secret of a sandbox it seals with
// the folder's key.
type recorder struct {
	store *store.Store
	key   *secret.Key
}

// settings is what of a record is never looked for, as the store keeps it.
type settings struct {
	Asked               []string `json:"asked,omitempty"`
	Warm                []string `json:"warm,omitempty"`
	TimeoutMS           int64    `json:"timeoutMS"`
	IdleMS              int64    `json:"idleMS,omitempty"`
	Pause               bool     `json:"pause,omitempty"`
	FilesOnly           bool     `json:"filesOnly,omitempty"` // of that pause
	RemainingMS         int64    `json:"remainingMS,omitempty"`
	AutoResume          bool     `json:"autoResume,omitempty"`
	AllowInternetAccess *bool    `json:"allowInternetAccess,omitempty"`
	// Network is in records of Cubby 0.1, which had no secrets in it.
	Network      *protocol.Network `json:"network,omitempty"`
	Secure       bool              `json:"secure,omitempty"`
	ContextToken bool              `json:"contextToken,omitempty"`
}

// sealed is what of a record is secret.
type sealed struct {
	Env     map[string]string `json:"env,omitempty"`
	Network *protocol.Network `json:"network,omitempty"` // its rules may hold keys
}

func (r recorder) Put(ctx context.Context, rec host.Record) error {
	open, err := json.Marshal(settings{
		Asked: rec.Asked, Warm: rec.Warm, TimeoutMS: rec.Lifecycle.Timeout.Milliseconds(), IdleMS: rec.Lifecycle.Idle.Milliseconds(),
		Pause: rec.Lifecycle.Pause, FilesOnly: rec.Lifecycle.FilesOnly, RemainingMS: rec.Remaining.Milliseconds(),
		AutoResume: rec.Lifecycle.AutoResume, AllowInternetAccess: rec.AllowInternetAccess,
		Secure: rec.Secure, ContextToken: rec.ContextToken,
	})
	if err != nil {
		return err
	}
	var hidden []byte
	if rec.State != host.StateEnded {
		if hidden, err = json.Marshal(sealed{rec.Env, rec.Network}); err != nil {
			return err
		}
		hidden = r.key.Seal(rec.ID, hidden)
	}
	return r.store.PutSandbox(ctx, store.Sandbox{
		ID: rec.ID, PublicID: rec.PublicID, Generation: rec.Generation, TeamID: rec.TeamID,
		TemplateID: rec.TemplateID, TemplateDigest: rec.TemplateDigest, Engine: rec.Engine,
		EngineBuild: rec.EngineCommit, State: string(rec.State),
		CPUs: rec.Limits.CPUs, MemoryMB: rec.Limits.MemoryMB, DiskMB: rec.Limits.DiskMB, PIDs: rec.Limits.PIDs,
		Memories: rec.Instance.Memory, Files: rec.Instance.Files, Metadata: rec.Metadata, Settings: open, Sealed: hidden,
		StartedAt: rec.StartedAt, EndAt: rec.EndAt, PausedAt: rec.PausedAt, EndedAt: rec.EndedAt, EndReason: rec.Reason,
	})
}

func (r recorder) Get(ctx context.Context, id string) (host.Record, error) {
	b, err := r.store.Sandbox(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return host.Record{}, host.ErrNotFound
	case err != nil:
		return host.Record{}, err
	}
	return r.record(b)
}

func (r recorder) Live(ctx context.Context) ([]host.Record, error) {
	all, err := r.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	records := make([]host.Record, 0, len(all))
	for _, b := range all {
		rec, err := r.record(b)
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// record opens what the store keeps. What cannot be opened is an error, never a
// sandbox without secrets.
func (r recorder) record(b store.Sandbox) (host.Record, error) {
	const hint = "the database was changed by other means, or is of another folder: restore the folder from a backup"
	var open settings
	if err := json.Unmarshal(b.Settings, &open); err != nil {
		return host.Record{}, &fault.Error{Code: fault.Internal, Err: fmt.Errorf("record of sandbox %s: %w", b.ID, err), Hint: hint}
	}
	var hidden sealed
	// Nothing is sealed of what has ended, and was by the first version of Cubby.
	if b.State != store.StateEnded && b.Engine != "" {
		plain, err := r.key.Open(b.ID, b.Sealed)
		if err == nil {
			err = json.Unmarshal(plain, &hidden)
		}
		if err != nil {
			return host.Record{}, &fault.Error{Code: fault.Internal, Err: fmt.Errorf("record of sandbox %s: %w", b.ID, err), Hint: hint}
		}
	}
	return host.Record{
		Identity: host.Identity{
			ID: b.ID, PublicID: b.PublicID, Generation: b.Generation, TeamID: b.TeamID,
			TemplateID: b.TemplateID, TemplateDigest: b.TemplateDigest, Engine: b.Engine, EngineCommit: b.EngineBuild,
			Limits: protocol.Limits{CPUs: b.CPUs, MemoryMB: b.MemoryMB, DiskMB: b.DiskMB, PIDs: b.PIDs}, Asked: open.Asked,
			Env: hidden.Env, Warm: open.Warm, Metadata: b.Metadata,
			Lifecycle: host.Lifecycle{Timeout: time.Duration(open.TimeoutMS) * time.Millisecond,
				Idle: time.Duration(open.IdleMS) * time.Millisecond, Pause: open.Pause, FilesOnly: open.FilesOnly, AutoResume: open.AutoResume},
			Secure: open.Secure, ContextToken: open.ContextToken,
		},
		State: host.State(b.State), Instance: host.Instance{Memory: b.Memories, Files: b.Files},
		AllowInternetAccess: open.AllowInternetAccess, Network: cmp.Or(hidden.Network, open.Network),
		StartedAt: b.StartedAt, EndAt: b.EndAt, PausedAt: b.PausedAt, EndedAt: b.EndedAt, Reason: b.EndReason,
		Remaining: time.Duration(open.RemainingMS) * time.Millisecond,
	}, nil
}

// snapshots are a host's in the store.
type snapshots struct {
	store *store.Store
	key   *secret.Key
}

type snapshotSettings struct {
	Limits protocol.Limits `json:"limits"`
}

func (s snapshots) PutSnapshot(ctx context.Context, snap host.Snapshot) error {
	open, err := json.Marshal(snapshotSettings{snap.Limits})
	if err != nil {
		return err
	}
	hidden, err := json.Marshal(sealed{Env: snap.Env})
	if err != nil {
		return err
	}
	return s.store.PutTemplate(ctx, store.Template{
		ID: snap.ID, TeamID: snap.TeamID, SandboxID: snap.SandboxID, Names: snap.Names, FilesOnly: snap.FilesOnly,
		Bytes: snap.Size, Settings: open, Sealed: s.key.Seal(snap.ID, hidden), CreatedAt: snap.CreatedAt,
	})
}

func (s snapshots) Snapshot(ctx context.Context, teamID, ref string) (host.Snapshot, error) {
	name, tag := host.SplitRef(ref)
	if host.IsSnapshotID(name) {
		if tag != host.DefaultTag {
			return host.Snapshot{}, host.ErrNotFound
		}
		ref = name
	} else {
		ref = name + ":" + tag
	}
	t, err := s.store.Template(ctx, teamID, ref)
	if errors.Is(err, store.ErrNotFound) {
		return host.Snapshot{}, host.ErrNotFound
	}
	if err != nil {
		return host.Snapshot{}, err
	}
	return s.snapshot(t)
}

func (s snapshots) ListSnapshots(ctx context.Context, teamID string) ([]host.Snapshot, error) {
	return s.list(ctx, teamID)
}

func (s snapshots) AllSnapshots(ctx context.Context) ([]host.Snapshot, error) { return s.list(ctx, "") }

func (s snapshots) list(ctx context.Context, teamID string) ([]host.Snapshot, error) {
	all, err := s.store.Templates(ctx, teamID)
	if err != nil {
		return nil, err
	}
	out := make([]host.Snapshot, 0, len(all))
	for _, t := range all {
		snap, err := s.snapshot(t)
		if err != nil {
			return nil, err
		}
		out = append(out, snap)
	}
	return out, nil
}

func (s snapshots) DeleteSnapshot(ctx context.Context, teamID, id string) error {
	err := s.store.DeleteTemplate(ctx, teamID, id)
	if errors.Is(err, store.ErrNotFound) {
		return host.ErrNotFound
	}
	return err
}

func (s snapshots) snapshot(t store.Template) (host.Snapshot, error) {
	var open snapshotSettings
	var hidden sealed
	plain, err := s.key.Open(t.ID, t.Sealed)
	if err == nil {
		err = errors.Join(json.Unmarshal(t.Settings, &open), json.Unmarshal(plain, &hidden))
	}
	if err != nil {
		return host.Snapshot{}, &fault.Error{Code: fault.Internal, Err: fmt.Errorf("record of snapshot %s: %w", t.ID, err),
			Hint: "the database was changed by other means, or is of another folder: restore the folder from a backup"}
	}
	return host.Snapshot{
		ID: t.ID, TeamID: t.TeamID, SandboxID: t.SandboxID, Names: t.Names, FilesOnly: t.FilesOnly, Limits: open.Limits,
		Env: hidden.Env, Size: t.Bytes, CreatedAt: t.CreatedAt,
	}, nil
}
