package enginetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

func (s Suite) testCheckpointRestore(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	spec := s.spec(t, engine.Limits{Memory: 256 << 20, CPUs: 1, Disk: 64 << 20, PIDs: 64})
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	checkpointer := can[engine.Checkpointer](t, m0)
	m.must(t, "", "x = 41; open('/home/user/kept', 'w').write('on disk'); open('/tmp/kept', 'w').write('in tmp')")

	dir := t.TempDir()
	running, stopped := dir+"/running", dir+"/stopped"
	for _, d := range []string{running, stopped} {
		mkdir(t, d)
	}
	if err := checkpointer.Checkpoint(t.Context(), running, engine.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := m.must(t, "", "x += 100; print(x)"); got != "141" {
		t.Errorf("after a checkpoint: %q", got)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	// The same image serves more than once.
	for i := range 2 {
		spec.ID = fmt.Sprintf("%sr%d", spec.ID, i)
		r0, err := restorer.Restore(t.Context(), spec, running, engine.RestoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := newMachine(t, r0)
		r.healthy(t)
		if got := r.must(t, "", "x += 1; print(x, open('/home/user/kept').read(), open('/tmp/kept').read())"); got != "42 on disk in tmp" {
			t.Errorf("restored %d: %q", i, got)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// testForeignCheckpoint: what is no checkpoint of this engine is refused as such.
func (s Suite) testForeignCheckpoint(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	m, err := restorer.Restore(t.Context(), s.spec(t, engine.Limits{}), t.TempDir(), engine.RestoreOptions{})
	if err == nil {
		newMachine(t, m)
	}
	if !errors.Is(err, engine.ErrForeign) {
		t.Errorf("an empty folder: %v", err)
	}
}
