//go:build linux

package files

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestListings is what ListDir makes of links, depths and too much.
func TestListings(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.MkdirAll(b.at("d/b/c"), 0o755), os.WriteFile(b.at("d/b/c/f"), nil, 0o644), os.WriteFile(b.at("d/a"), nil, 0o644),
		os.Symlink("d", b.at("link")), os.Symlink("..", b.at("d/up")), os.Symlink("none", b.at("dangling")))
	list := func(path string, depth uint32) ([]string, error) {
		resp, err := b.filesystem().ListDir(t.Context(), connect.NewRequest(&envd.ListDirRequest{Path: path, Depth: depth}))
		if err != nil {
			return nil, err
		}
		var names []string
		for _, e := range resp.Msg.Entries {
			names = append(names, strings.TrimPrefix(e.Path, b.home+"/"))
		}
		return names, nil
	}
	for _, c := range []struct {
		path  string
		depth uint32
		want  string
	}{
		{"d", 0, "d/a d/b d/up"},
		{"d/", 1, "d/a d/b d/up"},
		{"d", 2, "d/a d/b d/b/c d/up"},
		{"d", 1<<32 - 1, "d/a d/b d/b/c d/b/c/f d/up"}, // no link is followed
		{"link", 2, "link/a link/b link/b/c link/up"},  // but the one that is asked for
		{"d/up/link/b/../b", 1, "d/up/link/b/c"},       // paths begin as asked for
		{"~", 1, "d dangling link"},                    // links to nothing are listed
		{b.home + "//d/./b", 3, "d/b/c d/b/c/f"},       // without what says nothing
		// Linux follows 40 links and counts those of up to three attempts at one path.
		{strings.Repeat("d/up/", 12) + "d/b/c", 1, strings.Repeat("d/up/", 12) + "d/b/c/f"},
	} {
		if got, err := list(c.path, c.depth); err != nil || !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s, %d deep: %v %v", c.path, c.depth, got, err)
		}
	}
	for path, code := range map[string]connect.Code{
		"dangling": connect.CodeNotFound, "d/a": connect.CodeInvalidArgument, "d/a/x": connect.CodeInvalidArgument, "none": connect.CodeNotFound,
	} {
		if _, err := list(path, 1); connect.CodeOf(err) != code {
			t.Errorf("%s: %v", path, err)
		}
	}
	if resp, text := b.do("POST", "/filesystem.Filesystem/ListDir", strings.NewReader(`{"path":"d","depth":-1}`), "Content-Type", "application/json"); resp.StatusCode != 400 || !strings.Contains(text, "invalid_argument") {
		t.Error(resp.Status, text)
	}
	l := listing{files: b.g, ctx: t.Context(), bytes: maxListBytes}
	if err := l.dir(b.home, 1); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "list a smaller part") {
		t.Error(err)
	}
}

// asNobody runs f on a thread to which files are refused as to a plain user.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if os.Getuid() == 0 {
			guesttest.Must(t, unix.Setfsuid(65534))
		}
		f()
	}()
	<-done
}

// TestListingsPassOver lists folders in which some cannot be read: the rest is
// listed, and so are they.
func TestListingsPassOver(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.Chmod(filepath.Dir(b.home), 0o755), os.MkdirAll(b.at("d/shut/in"), 0o755), os.MkdirAll(b.at("d/names"), 0o755),
		os.WriteFile(b.at("d/names/f"), nil, 0o644), os.WriteFile(b.at("d/z"), nil, 0o644))
	guesttest.Must(t, os.Chmod(b.at("d/shut"), 0), os.Chmod(b.at("d/names"), 0o444))
	t.Cleanup(func() { guesttest.Must(t, os.Chmod(b.at("d/shut"), 0o755), os.Chmod(b.at("d/names"), 0o755)) })
	asNobody(t, func() {
		l := listing{files: b.g, ctx: t.Context()}
		if err := l.dir(b.at("d"), 3); err != nil {
			t.Error(err)
		}
		var names []string
		for _, e := range l.entries {
			names = append(names, strings.TrimPrefix(e.Path, b.home+"/")+":"+e.Type.String()[len("FILE_TYPE_"):])
		}
		if got, want := strings.Join(names, " "), "d/names:DIRECTORY d/names/f:FILE d/shut:DIRECTORY d/z:FILE"; got != want {
			t.Errorf("listed %s, want %s", got, want)
		}
		// The folder itself is another matter.
		if err := (&listing{files: b.g, ctx: t.Context()}).dir(b.at("d/shut"), 3); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a folder that cannot be read: %v", err)
		}
	})
}

// TestMessagesAreBounded sends more than a path can be.
func TestMessagesAreBounded(t *testing.T) {
	b := newBox(t)
	resp, text := b.do("POST", "/filesystem.Filesystem/Stat", strings.NewReader(`{"path":"`+strings.Repeat("x", MaxCall)+`"}`), "Content-Type", "application/json")
	if resp.StatusCode != 429 || !strings.Contains(text, "resource_exhausted") {
		t.Error(resp.Status, text[:min(len(text), 200)])
	}
}

// TestListingPages: the pages of a listing are the listing.
func TestListingPages(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.MkdirAll(b.at("d/b/c"), 0o755), os.WriteFile(b.at("d/b/c/f"), nil, 0o644),
		os.WriteFile(b.at("d/a"), nil, 0o644), os.WriteFile(b.at("d/z"), nil, 0o644))
	for size, want := range map[string][]string{
		"2": {"d/a d/b", "d/b/c d/b/c/f", "d/z", ""},
		"5": {"d/a d/b d/b/c d/b/c/f d/z", ""},
		"":  {"d/a d/b d/b/c d/b/c/f d/z", ""},
	} {
		skip := 0
		for _, page := range want {
			req := connect.NewRequest(&envd.ListDirRequest{Path: "d", Depth: 9})
			req.Header().Set(protocol.HeaderListSkip, strconv.Itoa(skip))
			req.Header().Set(protocol.HeaderListMax, size)
			resp, err := b.filesystem().ListDir(t.Context(), req)
			guesttest.Must(t, err)
			var names []string
			for _, e := range resp.Msg.Entries {
				names = append(names, strings.TrimPrefix(e.Path, b.home+"/"))
			}
			if got := strings.Join(names, " "); got != page {
				t.Errorf("pages of %s, after %d: %q, want %q", size, skip, got, page)
			}
			skip += len(names)
		}
	}
	req := connect.NewRequest(&envd.ListDirRequest{Path: "d"})
	req.Header().Set(protocol.HeaderListSkip, "-1")
	if _, err := b.filesystem().ListDir(t.Context(), req); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Error(err)
	}
}
