package embedded_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// TestBuilds: a cubby that was built of other sources than this program is
// refused, with both builds named, though both have the same version. One that was
// built in another way of the same sources is not: the cubby of all tests is
// trimmed and stripped, and this program is neither.
func TestBuilds(t *testing.T) {
	testenv.CheckLeaks(t)
	out, err := exec.Command(testenv.Cubby(t), "version").Output()
	if err != nil || !strings.Contains(string(out), " "+version.Build()+" ") {
		t.Errorf("this program is %s, cubby says %q, %v", version.Build(), out, err)
	}
	other := otherBuild(t)
	_, err = embedded.Open(t.Context(), embedded.Config{Binary: other})
	if cubby.CodeOf(err) != cubby.CodeIncompatible || !strings.Contains(err.Error(), "built of different sources") ||
		!strings.Contains(err.Error(), version.Build()) {
		t.Errorf("got code %v: %v", cubby.CodeOf(err), err)
	}
}

// otherBuild is a cubby with one line more in what its processes say to each
// other, of a tree whose version control tells nothing of that.
func otherBuild(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil || os.Getenv("CUBBY_TEST_BIN") != "" {
		t.Skip("this test builds cubby")
	}
	dir := t.TempDir()
	source, err := filepath.Abs("../internal/handshake/handshake.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(dir, "handshake.go")
	if err := os.WriteFile(changed, append(text, "\n// FlagColour is new.\nconst FlagColour = \"colour\"\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "cubby")
	build := exec.Command("go", "build", "-overlay", file, "-trimpath", "-ldflags=-s -w", "-o", binary, "../cmd/cubby")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}
