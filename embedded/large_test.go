package embedded_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// TestLargeCells runs, in a sandbox of the default size, what agents send: archives
// in the middle of code.
func TestLargeCells(t *testing.T) {
	sbx := create(t)
	for _, mib := range []int{1, 16} {
		archive := strings.Repeat("QUJD", mib<<18)
		want := fmt.Sprintln(mib << 20 * 3 / 4)
		for language, code := range map[string]string{
			"bash":   "set -e\ncat > a.b64 <<'EOF'\n" + archive + "\nEOF\nbase64 -d < a.b64 | wc -c; rm a.b64",
			"python": "import base64\nprint(len(base64.b64decode('" + archive + "')))",
		} {
			ex := run(t, sbx, code, cubby.WithLanguage(language), cubby.WithTimeout(2*time.Minute))
			if ex.Stdout != want {
				t.Errorf("%d MiB of %s: %.200q %.200q %+v", mib, language, ex.Stdout, ex.Stderr, ex.Error)
			}
		}
	}

	// What memory does not suffice for ends as such.
	archive := strings.Repeat("QUJD", 15<<20)
	ex := run(t, sbx, "cat > a.b64 <<'EOF'\n"+archive+"\nEOF\necho done", cubby.WithLanguage("bash"), cubby.WithTimeout(2*time.Minute))
	if !ex.OOMKilled && ex.Stdout != "done\n" {
		t.Errorf("60 MiB: %.200q %.200q %+v", ex.Stdout, ex.Stderr, ex.Error)
	}
	if ex := run(t, sbx, "print('alive')"); !strings.HasSuffix(ex.Stdout, "alive\n") {
		t.Errorf("the sandbox did not live on: %+v", ex)
	}
}
