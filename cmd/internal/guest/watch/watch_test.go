//go:build linux

package watch

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

// watching is a stream of WatchDir that has begun.
type watching struct {
	*box
	stream *connect.ServerStreamForClient[envd.WatchDirResponse]
}

func (b *box) watch(req *envd.WatchDirRequest, header ...string) *watching {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.Cleanup(cancel)
	r := connect.NewRequest(req)
	for i := 0; i < len(header); i += 2 {
		r.Header().Set(header[i], header[i+1])
	}
	stream, err := b.filesystem().WatchDir(ctx, r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cancel(); _ = stream.Close() })
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		b.Fatal("the first message is no start:", stream.Msg(), stream.Err())
	}
	return &watching{b, stream}
}

// describe writes an event as "create:name", with a star if an entry describes it.
func describe(e *envd.FilesystemEvent) string {
	s := strings.ToLower(strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_")) + ":" + e.Name
	if e.Entry != nil {
		s += "*"
	}
	return s
}

// until returns the events up to and with the last one.
func (w *watching) until(last string) []string {
	w.Helper()
	var seen []string
	for w.stream.Receive() {
		if e := w.stream.Msg().GetFilesystem(); e != nil {
			seen = append(seen, describe(e))
			if seen[len(seen)-1] == last {
				return seen
			}
		}
	}
	w.Fatalf("%s did not come: %v %v", last, seen, w.stream.Err())
	return nil
}

// TestWatchDir is what happens in a folder, and the events that tell of it.
func TestWatchDir(t *testing.T) {
	write := func(name string) error { return os.WriteFile(name, []byte("x"), 0o644) }
	for _, c := range []struct {
		name      string
		recursive bool
		entries   bool
		before    func(b *box) error // before the watch begins
		do        func(b *box) error
		want      string // events; the last one is waited for
	}{
		{
			name: "a file's life",
			do: func(b *box) error {
				f, err := os.Create(b.at("w/f"))
				guesttest.Must(b.T, err)
				_, err = f.WriteString("x")
				guesttest.Must(b.T, err, f.Close(), os.Chmod(b.at("w/f"), 0o600), os.Rename(b.at("w/f"), b.at("w/g")), os.Remove(b.at("w/g")))
				return nil
			},
			want: "create:f write:f chmod:f rename:f create:g remove:g",
		},
		{
			name: "entries, of what is still there", entries: true,
			before: func(b *box) error { return write(b.at("w/old")) },
			do: func(b *box) error {
				guesttest.Must(b.T, os.Chmod(b.at("w/old"), 0o600), os.Mkdir(b.at("w/d"), 0o755), os.Rename(b.at("w/old"), b.at("outside")))
				return os.Remove(b.at("w/d"))
			},
			want: "rename:old remove:d",
		},
		{
			name: "not recursive: what is in sub-folders is not seen",
			do: func(b *box) error {
				guesttest.Must(b.T, os.Mkdir(b.at("w/d"), 0o755), write(b.at("w/d/f")))
				return os.Mkdir(b.at("w/end"), 0o755)
			},
			want: "create:d create:end",
		},
		{
			name: "recursive: old folders", recursive: true,
			before: func(b *box) error { return os.MkdirAll(b.at("w/a/b"), 0o755) },
			do:     func(b *box) error { return write(b.at("w/a/b/f")) },
			want:   "create:a/b/f write:a/b/f",
		},
		{
			name: "recursive: a link to a folder is not followed", recursive: true,
			before: func(b *box) error {
				guesttest.Must(b.T, os.Mkdir(b.at("elsewhere"), 0o755))
				return os.Symlink(b.at("elsewhere"), b.at("w/link"))
			},
			do: func(b *box) error {
				guesttest.Must(b.T, write(b.at("elsewhere/f")))
				return os.Mkdir(b.at("w/end"), 0o755)
			},
			want: "create:end",
		},
		{
			name: "recursive: a folder gets another name", recursive: true,
			before: func(b *box) error { return os.MkdirAll(b.at("w/a/b"), 0o755) },
			do: func(b *box) error {
				guesttest.Must(b.T, os.Rename(b.at("w/a"), b.at("w/z")))
				return write(b.at("w/z/b/f"))
			},
			want: "rename:a create:z create:z/b/f write:z/b/f",
		},
		{
			name: "recursive: a folder leaves", recursive: true,
			before: func(b *box) error { return os.MkdirAll(b.at("w/a/b"), 0o755) },
			do: func(b *box) error {
				guesttest.Must(b.T, os.Rename(b.at("w/a"), b.at("outside")))
				guesttest.WaitFor(b.T, "watching it no more", func() bool { return inotifyWatches(b.T) == 1 })
				guesttest.Must(b.T, write(b.at("outside/b/f")))
				return os.Mkdir(b.at("w/end"), 0o755)
			},
			want: "rename:a create:end",
		},
		{
			name: "recursive: a folder is removed, and made again", recursive: true,
			before: func(b *box) error { return os.MkdirAll(b.at("w/a"), 0o755) },
			do: func(b *box) error {
				guesttest.Must(b.T, os.Remove(b.at("w/a")), os.Mkdir(b.at("w/a"), 0o755))
				guesttest.WaitFor(b.T, "watching the new one", func() bool { return inotifyWatches(b.T) == 2 })
				return write(b.at("w/a/f"))
			},
			want: "remove:a create:a create:a/f write:a/f",
		},
		{
			name: "the folder itself",
			do: func(b *box) error {
				guesttest.Must(b.T, os.Chmod(b.at("w"), 0o700))
				return os.Rename(b.at("w"), b.at("v"))
			},
			want: "chmod:. rename:.",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			guesttest.Must(t, os.Mkdir(b.at("w"), 0o755))
			if c.before != nil {
				guesttest.Must(t, c.before(b))
			}
			w := b.watch(&envd.WatchDirRequest{Path: "w", Recursive: c.recursive, IncludeEntry: c.entries})
			guesttest.Must(t, c.do(b))
			want := strings.Fields(c.want)
			seen := w.until(want[len(want)-1])
			if c.entries {
				// When an event is looked at is a matter of time, except for those
				// that never have an entry.
				seen = slices.DeleteFunc(seen, func(e string) bool { return !strings.HasPrefix(e, "re") })
			}
			if !slices.Equal(seen, want) {
				t.Errorf("got  %v\nwant %v", seen, want)
			}
		})
	}
}

// inotifyWatches counts the folders that this process watches.
func inotifyWatches(t *testing.T) int {
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	guesttest.Must(t, err)
	n := 0
	for _, f := range files {
		b, _ := os.ReadFile(f) // some are gone meanwhile
		n += strings.Count(string(b), "inotify wd:")
	}
	return n
}

// TestWatchNewFolders makes trees as quickly as it can: each file is reported as
// created exactly once, whether the kernel or a look at the folder found it.
func TestWatchNewFolders(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.Mkdir(b.at("w"), 0o755))
	w := b.watch(&envd.WatchDirRequest{Path: "w", Recursive: true})
	const trees = 200
	go func() {
		for i := range trees {
			dir := b.at("w", fmt.Sprint(i), "a", "b")
			_ = os.MkdirAll(dir, 0o755)
			_ = os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644)
		}
		_ = os.Mkdir(b.at("w", "end"), 0o755)
	}()
	created := map[string]int{}
	for _, e := range w.until("create:end") {
		if name, ok := strings.CutPrefix(e, "create:"); ok {
			created[name]++
		}
	}
	for i := range trees {
		for _, name := range []string{"", "/a", "/a/b", "/a/b/f"} {
			if n := created[fmt.Sprint(i)+name]; n != 1 {
				t.Errorf("%d%s was reported %d times", i, name, n)
			}
		}
	}
}

func TestWatchEntry(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.Mkdir(b.at("w"), 0o755))
	w := b.watch(&envd.WatchDirRequest{Path: "w", IncludeEntry: true})
	guesttest.Must(t, os.WriteFile(b.at("w/f"), []byte("12345"), 0o640))
	w.until("write:f*")
	if e := w.stream.Msg().GetFilesystem().Entry; e.Path != b.at("w/f") || e.Name != "f" || e.Size != 5 || e.Type != envd.FileType_FILE_TYPE_FILE {
		t.Error(e)
	}
}

func TestWatchIsRefused(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.WriteFile(b.at("file"), nil, 0o644))
	c := b.filesystem()
	for _, test := range []struct {
		path, user string
		code       connect.Code
	}{
		{"none", "", connect.CodeNotFound},
		{"file", "", connect.CodeInvalidArgument},
		{"a\x00b", "", connect.CodeInvalidArgument},
		{"~", "bm9ib2R5Og==", connect.CodeUnauthenticated}, // nobody:
	} {
		r := connect.NewRequest(&envd.WatchDirRequest{Path: test.path})
		r2 := connect.NewRequest(&envd.CreateWatcherRequest{Path: test.path})
		if test.user != "" {
			r.Header().Set("Authorization", "Basic "+test.user)
			r2.Header().Set("Authorization", "Basic "+test.user)
		}
		stream, err := c.WatchDir(t.Context(), r)
		if err == nil {
			for stream.Receive() {
				t.Errorf("%q: %v", test.path, stream.Msg())
			}
			err = stream.Err()
			_ = stream.Close()
		}
		if connect.CodeOf(err) != test.code {
			t.Errorf("%q: %v", test.path, err)
		}
		if _, err := c.CreateWatcher(t.Context(), r2); connect.CodeOf(err) != test.code {
			t.Errorf("%q: %v", test.path, err)
		}
	}
	if n := b.g.table.count; n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

func TestWatchKeepsAlive(t *testing.T) {
	b := newBox(t)
	w := b.watch(&envd.WatchDirRequest{Path: "~"}, "Keepalive-Ping-Interval", "1")
	for range 2 {
		if !w.stream.Receive() || w.stream.Msg().GetKeepalive() == nil {
			t.Fatal(w.stream.Msg(), w.stream.Err())
		}
	}
	for header, want := range map[string]time.Duration{"": 90 * time.Second, "50": 50 * time.Second, "0": 90 * time.Second,
		"-1": 90 * time.Second, "x": 90 * time.Second, "99999999999": 90 * time.Second} {
		if got := reply.KeepaliveInterval(http.Header{"Keepalive-Ping-Interval": {header}}); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
}

func TestWatchEnds(t *testing.T) {
	b := newBox(t)
	t.Run("with its time", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		stream, err := b.filesystem().WatchDir(ctx, connect.NewRequest(&envd.WatchDirRequest{Path: "~"}))
		for err == nil && stream.Receive() {
		}
		if err == nil {
			err = stream.Err()
		}
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Error(err)
		}
	})
	t.Run("with its client", func(t *testing.T) {
		w := b.watch(&envd.WatchDirRequest{Path: "~"})
		_ = w.stream.Close()
		guesttest.WaitFor(t, "the end of the watch", func() bool {
			b.g.table.mu.Lock()
			defer b.g.table.mu.Unlock()
			return b.g.table.count == 0 && inotifyWatches(t) == 0 && b.g.table.budget.held.Load() == 0
		})
	})
	t.Run("with the guest", func(t *testing.T) {
		w := b.watch(&envd.WatchDirRequest{Path: "~"})
		b.guest.End()
		for w.stream.Receive() {
		}
		if connect.CodeOf(w.stream.Err()) != connect.CodeUnavailable {
			t.Error(w.stream.Err())
		}
	})
}

// TestPolledWatchers is a client that cannot stream.
func TestPolledWatchers(t *testing.T) {
	b := newBox(t)
	c := b.filesystem()
	guesttest.Must(t, os.Mkdir(b.at("w"), 0o755))
	made, err := c.CreateWatcher(t.Context(), connect.NewRequest(&envd.CreateWatcherRequest{Path: "w", Recursive: true}))
	guesttest.Must(t, err)
	get := func() ([]string, error) {
		resp, err := c.GetWatcherEvents(t.Context(), connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: made.Msg.WatcherId}))
		if err != nil {
			return nil, err
		}
		var all []string
		for _, e := range resp.Msg.Events {
			all = append(all, describe(e))
		}
		return all, nil
	}
	if got, err := get(); err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}
	guesttest.Must(t, os.Mkdir(b.at("w/d"), 0o755), os.WriteFile(b.at("w/d/f"), nil, 0o644))
	var all []string
	guesttest.WaitFor(t, "the events", func() bool {
		got, err := get()
		guesttest.Must(t, err)
		all = append(all, got...)
		return len(all) == 2
	})
	if !slices.Equal(all, []string{"create:d", "create:d/f"}) {
		t.Error(all)
	}
	remove := func() error {
		_, err := c.RemoveWatcher(t.Context(), connect.NewRequest(&envd.RemoveWatcherRequest{WatcherId: made.Msg.WatcherId}))
		return err
	}
	guesttest.Must(t, remove())
	if err := remove(); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	if _, err := get(); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "watcher with id "+made.Msg.WatcherId+" not found") {
		t.Error(err)
	}
	if held := b.g.table.budget.held.Load(); held != 0 || b.g.table.count != 0 {
		t.Errorf("%d bytes and %d places are held", held, b.g.table.count)
	}
}

// TestUnfetchedEvents fills what a sandbox keeps of events: what was kept comes
// first, then the word that something is missing; nothing is lost in silence, and
// another watch has room again.
func TestUnfetchedEvents(t *testing.T) {
	b := newBox(t)
	c := b.filesystem()
	guesttest.Must(t, os.Mkdir(b.at("w"), 0o755))
	made, err := c.CreateWatcher(t.Context(), connect.NewRequest(&envd.CreateWatcherRequest{Path: "w"}))
	guesttest.Must(t, err)
	w := b.g.table.polled[made.Msg.WatcherId].watch
	const room = 256 << 10
	if !b.g.table.budget.take(watchBudget - room) { // by others
		t.Fatal("the budget is not what it was")
	}
	for i := 0; w.failure() == nil; i++ {
		if i > room/overhead {
			t.Fatal("there is no bound")
		}
		guesttest.Must(t, os.Mkdir(b.at("w/d"), 0o755), os.Remove(b.at("w/d")))
	}
	if held := b.g.table.budget.held.Load(); held > watchBudget {
		t.Errorf("%d bytes are held", held)
	}
	req := connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: made.Msg.WatcherId})
	resp, err := c.GetWatcherEvents(t.Context(), req)
	if err != nil || len(resp.Msg.Events) < room/overhead/4 {
		t.Fatal(len(resp.Msg.GetEvents()), err)
	}
	for range 2 {
		if _, err := c.GetWatcherEvents(t.Context(), req); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Error(err)
		}
	}
	next := b.watch(&envd.WatchDirRequest{Path: "w"})
	guesttest.Must(t, os.Mkdir(b.at("w/d"), 0o755))
	next.until("create:d")
}

// TestManyWatches takes every place: a watch that nobody asks for gives way, one
// in use does not.
func TestManyWatches(t *testing.T) {
	b := newBox(t)
	b.g.table.count = maxWatches - 1 // the others
	c := b.filesystem()
	create := func() (string, error) {
		resp, err := c.CreateWatcher(t.Context(), connect.NewRequest(&envd.CreateWatcherRequest{Path: "~"}))
		if err != nil {
			return "", err
		}
		return resp.Msg.WatcherId, nil
	}
	first, err := create()
	guesttest.Must(t, err)
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "stop one") {
		t.Fatal(err)
	}
	b.g.table.polled[first].asked = time.Now().Add(-2 * idleTime)
	second, err := create()
	guesttest.Must(t, err)
	ask := connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: first})
	if _, err := c.GetWatcherEvents(t.Context(), ask); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	if _, err := c.GetWatcherEvents(t.Context(), connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: second})); err != nil {
		t.Error(err)
	}
}

// TestWatchWithoutAClient asks for a watch and is gone before it stands.
func TestWatchWithoutAClient(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.g.newWatch(ctx, b.home, true, false); err == nil {
		t.Error("it watches")
	}
	guesttest.WaitFor(t, "the end", func() bool { return inotifyWatches(t) == 0 && b.g.table.budget.held.Load() == 0 })
}
