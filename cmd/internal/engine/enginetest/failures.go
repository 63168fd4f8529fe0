package enginetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// testCheckpointFails: a checkpoint that fails says why and leaves nothing, and the
// machine as it was: what ran runs on, what was frozen is frozen, with connections to
// it and within it.
func (s Suite) testCheckpointFails(t *testing.T) {
	m, checkpointer, pauser, restorer := s.checkpointed(t, s.spec(t, engine.Limits{}), `
import os, socket, threading
open('/home/user/written', 'wb').write(os.urandom(4 << 20))
x = bytearray(os.urandom(8 << 20))
listener = socket.create_server(('127.0.0.1', 0))
def serve(server):
    conn, _ = server.accept()
    while data := conn.recv(100): conn.sendall(data.upper())
outer = socket.create_server(('127.0.0.1', 5005))
for server in (listener, outer): threading.Thread(target=serve, args=(server,), daemon=True).start()
client = socket.create_connection(listener.getsockname())`)
	conn, err := m.Dial(t.Context(), 5005)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	goesOn := func(t *testing.T) {
		t.Helper()
		if got := m.must(t, "", "client.sendall(b'ping'); print(client.recv(100))"); got != "b'PING'" {
			t.Errorf("its connection within says %s", got)
		}
		var answer [4]byte
		conn.SetDeadline(time.Now().Add(time.Minute))
		_, err := conn.Write([]byte("pong"))
		if err == nil {
			_, err = conn.Read(answer[:])
		}
		if string(answer[:]) != "PONG" {
			t.Errorf("a connection to it says %q, %v", answer, err)
		}
	}
	// disk mounts one, or skips the test.
	disk := func(t *testing.T, options string, flags uintptr) string {
		t.Helper()
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
			t.Skipf("a file system cannot be mounted here: %v", err)
		}
		t.Cleanup(func() {
			// gVisor does not close what it could not write.
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	ended, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	for _, test := range []struct {
		name   string
		dir    func(t *testing.T) string
		ctx    context.Context
		memory bool // it fails with memory only
		want   error
		says   string
	}{
		// The first file that does not fit is another each time.
		{name: "a disk of nothing", dir: func(t *testing.T) string { return disk(t, "size=4k", 0) }, want: unix.ENOSPC},
		{name: "a disk for the state", dir: func(t *testing.T) string { return disk(t, "size=1m", 0) }, want: unix.ENOSPC},
		{name: "a disk for the files", dir: func(t *testing.T) string { return disk(t, "size=6m", 0) }, memory: true, want: unix.ENOSPC},
		{name: "a disk without names", dir: func(t *testing.T) string { return disk(t, "nr_inodes=3", 0) }, want: unix.ENOSPC},
		{name: "a disk that cannot be written", dir: func(t *testing.T) string { return disk(t, "", unix.MS_RDONLY) }, says: "read-only file system"},
		{name: "a folder that is not there", dir: func(t *testing.T) string { return filepath.Join(t.TempDir(), "away") }, want: fs.ErrNotExist},
		{name: "a folder with a file", dir: func(t *testing.T) string {
			dir := t.TempDir()
			mkdir(t, filepath.Join(dir, "mine"))
			return dir
		}, says: "mine"},
		{name: "too late", dir: func(t *testing.T) string { return t.TempDir() }, ctx: ended, want: enough},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, ctx := test.dir(t), test.ctx
			before, _ := os.ReadDir(dir)
			free := freeBytes(dir)
			if ctx == nil {
				ctx = t.Context()
			}
			for _, opts := range []engine.CheckpointOptions{{}, {FilesOnly: true}} {
				if test.memory && opts.FilesOnly {
					continue
				}
				for _, frozen := range []bool{false, true} {
					if frozen {
						if err := pauser.Pause(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					err := checkpointer.Checkpoint(ctx, dir, opts)
					if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
						t.Errorf("%+v: %v", opts, err)
					}
					if after, _ := os.ReadDir(dir); len(after) != len(before) {
						t.Errorf("%+v: it left %v", opts, after)
					}
					if now := freeBytes(dir); now != free {
						t.Errorf("%+v: %d bytes were free there, and %d are", opts, free, now)
					}
					if frozen {
						if m.answers(t) {
							t.Errorf("%+v: it was frozen, and runs", opts)
						}
						if err := pauser.Resume(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					goesOn(t)
				}
			}
		})
	}
	t.Run("given up", func(t *testing.T) {
		m.must(t, "", "x = bytearray(os.urandom(1 << 20)) * 200")
		for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
			dir := t.TempDir()
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, enough)
			err := checkpointer.Checkpoint(ctx, dir, engine.CheckpointOptions{})
			cancel()
			left, _ := os.ReadDir(dir)
			if err == nil {
				t.Errorf("after %v it was done", after)
			} else if !errors.Is(err, enough) || len(left) > 0 {
				t.Errorf("after %v: %v, and there is %v", after, err, left)
			}
			goesOn(t)
		}
	})
	// After all of these it can be written and restored as any other.
	image := checkpointOf(t, m.Machine, engine.CheckpointOptions{})
	spec := s.spec(t, engine.Limits{})
	r := restore(t, restorer, spec, "r", image)
	if got := r.must(t, "", "client.sendall(b'ping'); print(client.recv(100), len(x))"); got != "b'PING' 209715200" {
		t.Errorf("restored: %s", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	t.Run("closed", func(t *testing.T) {
		dir := t.TempDir()
		done := make(chan error, 1)
		go func() { done <- checkpointer.Checkpoint(t.Context(), dir, engine.CheckpointOptions{}) }()
		for { // until it writes
			if files, _ := os.ReadDir(dir); len(files) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		switch err := <-done; {
		case err == nil: // it was faster
			if err := restorer.Check(dir, engine.RestoreOptions{}); err != nil {
				t.Errorf("it was done, but %v", err)
			}
		case !errors.Is(err, engine.ErrEnded):
			t.Errorf("the checkpoint says %v", err)
		default:
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		}
	})
}

// freeBytes are those of the disk that a test mounted at dir; zero for another.
func freeBytes(dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return st.Bfree * uint64(st.Bsize)
}
