package child

import (
	"bytes"
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// records is what a server has of its data folder, in the test's own process.
type records struct {
	store *store.Store
	recorder
	team string
}

// openRecords opens a data folder as a server does; it is closed with the test.
func openRecords(t *testing.T, dir string) *records {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() }) // again, where the test has done it
	key, err := st.Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	team, _, _, err := st.Bootstrap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &records{st, recorder{st, key}, team}
}

// host is a host over the records, with machines of the test's own.
func (r *records) host(t *testing.T) *host.Host {
	t.Helper()
	images, err := (&private{store: r.store, key: r.key, kept: &keptPrograms{keep: func() error { return nil }}}).openImages(Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := host.New(host.Config{Engine: &hosttest.Engine{}, MaxSandboxes: 10, Recorder: r.recorder,
		Key: r.key, Images: images, Snapshots: snapshots{r.store, r.key}})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

const password = "a-password-that-nobody-may-read"

func (r *records) create(t *testing.T, h *host.Host) *host.Sandbox {
	t.Helper()
	closed := false
	req := host.CreateRequest{TeamID: r.team, Secure: true}
	req.EnvVars = map[string]string{"PASSWORD": password}
	req.Network = &protocol.Network{AllowPublicTraffic: &closed}
	s, err := h.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRecords: a record comes back as it was written, in every state.
func TestRecords(t *testing.T) {
	r := openRecords(t, t.TempDir())
	yes, no := true, false
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	full := host.Record{
		Identity: host.Identity{
			ID: "i1", PublicID: "p1", Generation: 7, TeamID: r.team, TemplateID: "base", TemplateDigest: "d", Engine: "gvisor", EngineCommit: "c",
			Limits: protocol.Limits{MemoryMB: 1, CPUs: 2.5, DiskMB: 3, PIDs: 4}, Asked: []string{"cpu"},
			Env: map[string]string{"A": "b", "": "ü"}, Warm: []string{"python"}, Metadata: map[string]string{"k": "v"},
			Lifecycle: host.Lifecycle{Timeout: 90 * time.Second, Pause: true, AutoResume: true},
			Secure:    true, ContextToken: true,
		},
		Instance: host.Instance{Memory: 2, Files: 3}, StartedAt: at, EndAt: at.Add(time.Hour), PausedAt: at.Add(time.Minute),
		AllowInternetAccess: &yes, Network: &protocol.Network{AllowPublicTraffic: &no, MaskRequestHost: "h:${PORT}"},
	}
	bare := host.Record{
		Identity:  host.Identity{ID: "i2", Generation: 1, TeamID: r.team, Engine: "test", Metadata: map[string]string{}},
		StartedAt: at, EndAt: at,
	}
	large := bare // as much metadata as a host lets through, of what takes most room
	large.ID, large.Metadata = "i4", map[string]string{"": strings.Repeat("\x01", 64<<10)}
	if err := r.Put(t.Context(), large); err != nil {
		t.Error(err)
	}
	for _, want := range []host.Record{full, bare} {
		for _, state := range []host.State{host.StateBooting, host.StateRunning, host.StatePausing,
			host.StatePaused, host.StateResuming, host.StateEnded} {
			want.State = state
			if state == host.StateEnded {
				want.EndedAt, want.Reason, want.Env, want.Network = at.Add(2*time.Hour), "it was killed", nil, nil
			}
			if err := r.Put(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			got, err := r.Get(t.Context(), want.ID)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got  %+v, %v\nwant %+v", state, got, err, want)
			}
		}
	}
	if _, err := r.Get(t.Context(), "i3"); err != host.ErrNotFound { //nolint:errorlint // the very error
		t.Errorf("a record that is not there: %v", err)
	}
}

// TestNothingToRead: no token and no value of an environment is in any byte of the
// data folder, while a sandbox lives and after; and what was sealed is removed.
func TestNothingToRead(t *testing.T) {
	r := openRecords(t, t.TempDir())
	h := r.host(t)
	s := r.create(t, h)
	hostToken := r.key.Token("host token", s.ID, 1)
	secrets := map[string]string{
		"the environment": password, "the access token": s.Token, "the traffic token": s.TrafficToken, "the host's token": hostToken,
	}
	look := func(when string) {
		t.Helper()
		files := 0
		err := filepath.WalkDir(r.store.Dir(), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			files++
			for name, text := range secrets {
				if len(text) < 20 || bytes.Contains(content, []byte(text)) {
					t.Errorf("%s: %s is in %s", when, name, path)
				}
			}
			return err
		})
		if err != nil || files < 2 {
			t.Fatalf("%d files, %v", files, err)
		}
	}
	look("while it lives")
	if live, err := r.store.LiveSandboxes(t.Context()); err != nil || len(live) != 1 || live[0].Sealed == nil {
		t.Errorf("%+v, %v", live, err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	look("after its end")
	if b, err := r.store.Sandbox(t.Context(), s.ID); err != nil || b.Sealed != nil || b.State != store.StateEnded {
		t.Errorf("%+v, %v", b, err)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	look("after its server")
}

// TestSameTokens: a server knows the tokens of the one before it on the same folder,
// and no other folder's does.
func TestSameTokens(t *testing.T) {
	dir := t.TempDir()
	first := openRecords(t, dir)
	s := first.create(t, first.host(t))
	second := openRecords(t, dir) // as if the first was killed: its record says that it runs
	h := second.host(t)
	if found, err := h.Recover(t.Context()); err != nil || found != (host.Recovered{Ended: 1}) {
		t.Fatalf("%+v, %v", found, err)
	}
	if why, ok := h.EndOf(t.Context(), s.ID, s.Token); !ok || why.Reason != "the server was killed; this was found at its next start" {
		t.Errorf("%v, %v", why, ok)
	}
	other := openRecords(t, t.TempDir())
	if _, ok := other.key.Check("access token", s.ID, s.Token); ok {
		t.Error("another folder's server takes the token")
	}
}

// TestSwappedRecords: what was sealed for one sandbox is not opened for another, and
// what cannot be opened is an error: no list without it, no sandbox without secrets.
func TestSwappedRecords(t *testing.T) {
	for name, spoil := range map[string]string{
		"swapped": `UPDATE sandboxes SET sealed = (SELECT sealed FROM sandboxes b WHERE b.id <> sandboxes.id)`,
		"changed": `UPDATE sandboxes SET sealed = substr(sealed, 2)`,
		"empty":   `UPDATE sandboxes SET sealed = x''`,
		"removed": `UPDATE sandboxes SET sealed = NULL`,
	} {
		t.Run(name, func(t *testing.T) {
			r := openRecords(t, t.TempDir())
			for _, id := range []string{"i1", "i2"} {
				rec := host.Record{Identity: host.Identity{ID: id, TeamID: r.team, Engine: "test", Env: map[string]string{"OF": id}},
					State: host.StateRunning, StartedAt: time.Now(), EndAt: time.Now()}
				if err := r.Put(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
			}
			db, err := sql.Open("sqlite", filepath.Join(r.store.Dir(), "cubby.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(spoil); err != nil {
				t.Fatal(err)
			}
			if rec, err := r.Get(t.Context(), "i1"); err == nil || !strings.Contains(err.Error(), "sealed with another key") {
				t.Errorf("%+v, %v", rec.Env, err)
			}
			h := host.New(host.Config{Engine: &hosttest.Engine{}, Recorder: r.recorder, Key: r.key})
			defer h.Close()
			_, err = h.Recover(context.Background())
			if e := fault.In(err); e == nil || !strings.Contains(e.Message(), "record of sandbox") || !strings.Contains(e.Hint, "backup") {
				t.Errorf("a start says %v", err)
			}
		})
	}
}

// TestFirstVersionsRecords: what the first version of Cubby left running has nothing
// sealed, and ends like any other.
func TestFirstVersionsRecords(t *testing.T) {
	r := openRecords(t, t.TempDir())
	rec := store.Sandbox{ID: "i1", TeamID: r.team, TemplateID: "base", State: "running", Generation: 1, StartedAt: time.Now(), EndAt: time.Now()}
	if err := r.store.PutSandbox(t.Context(), rec); err != nil { // as its migration leaves it
		t.Fatal(err)
	}
	h := r.host(t)
	if found, err := h.Recover(t.Context()); err != nil || found.Ended != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	_, err := h.Of(t.Context(), r.team, "i1")
	if fault.CodeOf(err) != fault.NotFound || !strings.HasSuffix(err.Error(), ": the server was killed; this was found at its next start") {
		t.Errorf("%v", err)
	}
	// It was given a token that nobody can derive, and so this one is nobody's.
	if why, ok := h.EndOf(t.Context(), "i1", r.key.Token("access token", "i1", 1)); ok {
		t.Errorf("%v", why)
	}
}
