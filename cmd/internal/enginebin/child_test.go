package enginebin

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/handshake"
)

// TestIsChild: the two who decide whether a process is to be the engine agree.
func TestIsChild(t *testing.T) {
	for _, args := range [][]string{
		nil, {"serve"}, {handshake.Command, "--" + handshake.FlagPrivate}, {handshake.Command, "--" + handshake.FlagPrivate, "--expect", "x"},
		{handshake.Command, "--listen", ":0"}, {"run", "--private"}, {"", ""},
	} {
		if got, want := isChild(args), handshake.IsChild(args); got != want {
			t.Errorf("%q: %v, want %v", args, got, want)
		}
	}
}

// TestComesEarly: none of what takes long to initialise is needed by this package, and so
// none of it is initialised before.
func TestComesEarly(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-tags", "cubby_packed", ".").Output()
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "github.com/cubby-sandbox/cubby/cmd/internal/packed/ready") {
		t.Fatalf("not what is built: %q", deps)
	}
	for _, late := range []string{"fmt", "reflect", "context", "net/http", "encoding/json", "crypto/sha256", "compress/gzip"} {
		if slices.Contains(deps, late) {
			t.Errorf("it needs %s", late)
		}
	}
	for _, dep := range deps {
		if strings.Contains(dep, ".") && !strings.HasPrefix(dep, "github.com/cubby-sandbox/cubby/cmd/internal/") {
			t.Errorf("it needs %s", dep)
		}
	}
}
