//go:build linux

package e2e

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestImages: with the owner's key what is paused is not to be read on the disk, and
// another start with the key, wherever it is kept, goes on with it. A server without the
// key refuses it and says why. No more is written than the owner's budget has.
func TestImages(t *testing.T) {
	testenv.CheckLeaks(t)
	dir, whole := os.Getenv("TMPDIR"), t
	file := filepath.Join(dir, "images.key")
	if err := os.WriteFile(file, []byte(oneKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startIn(t, dir, "--images-key-file", file)
	key := s.Key
	post := func(s *server, path string, body any) answer {
		t.Helper()
		return call(t, http.DefaultClient, "POST", s.URL+path, body, "X-API-KEY", key)
	}
	const marker = "what nobody may read on the disk"
	b := s.createWith(t, key, map[string]any{"timeout": 3000})
	// Made here, so that the marker is not in what was sent.
	s.python(t, b, "kept = ' '.join(['what', 'nobody', 'may', 'read', 'on', 'the', 'disk']); open('/tmp/kept', 'w').write(kept)")
	pause := func(s *server) {
		t.Helper()
		if a := post(s, "/sandboxes/"+b.ID+"/pause", nil); a.Status != http.StatusNoContent {
			t.Fatalf("pause: %d %s", a.Status, a.Body)
		}
	}
	// found says whether the marker is anywhere in the data folder.
	found := func() (is bool) {
		t.Helper()
		err := filepath.WalkDir(s.DataDir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			is = is || bytes.Contains(content, []byte(marker))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	pause(s)
	if found() {
		t.Error("the disk has what was paused as it is")
	}
	s.stop(t)

	s = startIn(whole, dir)
	checkError(t, post(s, "/v2/sandboxes/"+b.ID+"/connect", nil), http.StatusHTTPVersionNotSupported, "is encrypted")
	s.stop(t)

	s = startIn(whole, dir, "--images-key-command", "cat "+file, "--disk-budget", "1MiB")
	if a := post(s, "/v2/sandboxes/"+b.ID+"/connect", nil); a.Status != http.StatusCreated {
		t.Fatalf("connect: %d %s", a.Status, a.Body)
	}
	if got := s.python(t, b, "kept"); !strings.Contains(got, marker) {
		t.Errorf("it says %s", got)
	}
	checkError(t, post(s, "/sandboxes/"+b.ID+"/pause", nil), http.StatusInsufficientStorage, "remove paused sandboxes or snapshots")
	if d := s.detail(t, key, b); d.State != "running" {
		t.Errorf("after a pause without room it is %s", d.State)
	}
	s.stop(t)

	// Without a key it is there to be found: the search above can find it.
	s = startIn(whole, dir)
	b = s.createWith(t, key, map[string]any{"timeout": 3000})
	s.python(t, b, "open('/tmp/kept', 'w').write(' '.join(['what', 'nobody', 'may', 'read', 'on', 'the', 'disk']))")
	pause(s)
	if !found() {
		t.Error("the search finds nothing in an image that is not encrypted")
	}
}
