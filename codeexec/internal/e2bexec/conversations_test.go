package e2bexec

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

func newTestHolder(t *testing.T) *holder {
	t.Helper()
	cfg := &Config{}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	h := newHolder(cfg)
	t.Cleanup(func() { h.close() })
	return h
}

// A caller with ever new ids costs no more memory than one with some thousands.
func TestConversationsAreBounded(t *testing.T) {
	h, c := newTestHolder(t), newConversations(&Config{MaxContexts: 4})
	first, err := c.enter(t.Context(), h, "in use")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxConversations {
		v, err := c.enter(t.Context(), h, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		c.leave(v)
	}
	if n := len(c.all); n > maxConversations {
		t.Errorf("%d are remembered", n)
	}
	if c.all["in use"] != first {
		t.Error("one that is in use was forgotten")
	}
	c.leave(first)
}

func TestConversationsTakeTurns(t *testing.T) {
	h, c := newTestHolder(t), newConversations(&Config{MaxContexts: 4})
	v, err := c.enter(t.Context(), h, "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.enter(ctx, h, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	waiting := make(chan error)
	go func() {
		_, err := c.enter(context.Background(), h, "a")
		waiting <- err
	}()
	h.close() // who waits does not wait for ever
	if err := <-waiting; cubby.CodeOf(err) != cubby.CodeConflict {
		t.Errorf("got %v", err)
	}
	c.leave(v)
	if v.users != 0 {
		t.Errorf("%d users are counted", v.users)
	}
}

// Whatever an id holds, its folder is one below the folder of all, and another
// than each other's.
func FuzzFolderOf(f *testing.F) {
	for _, id := range []string{"a", "../..", "/etc", "a/b", "\x00\n", ".", strings.Repeat("x", 5000)} {
		f.Add(id, "b")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		dir := folderOf(a)
		if a == "" {
			if dir != cubby.Home {
				t.Errorf("got %q", dir)
			}
			return
		}
		if path.Dir(dir) != cubby.Home+"/conversations" || path.Clean(dir) != dir || strings.ContainsAny(dir, "\x00\n ") || len(dir) > 200 {
			t.Errorf("%q: %q", a, dir)
		}
		if a != b && dir == folderOf(b) {
			t.Errorf("%q and %q have the same", a, b)
		}
	})
}

// Names of languages come from models and go to servers.
func FuzzLanguageName(f *testing.F) {
	for _, s := range []string{"r", "c++", "objective-c", "../x", "a b", "\x1b[31m", "R"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if languageName.MatchString(s) && (len(s) > 32 || strings.ContainsAny(s, "/\\ \n\"'`$;\x1b") || s != strings.ToLower(s)) {
			t.Errorf("%q is asked for", s)
		}
	})
}
