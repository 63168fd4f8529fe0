package embedded_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

// TestEnvironmentSizes: what a call may set reaches programs, up to the bounds, and
// what is over one is told so before anything runs.
func TestEnvironmentSizes(t *testing.T) {
	sbx := create(t)
	ctx := bounded(t)
	numbered := func(n, size int) map[string]string {
		env := map[string]string{}
		for i := range n {
			env[fmt.Sprintf("V%d", i)] = strings.Repeat("x", size)
		}
		return env
	}
	const most = 128<<10 - 1
	for _, tt := range []struct {
		name string
		env  map[string]string
		want string // of the error; empty for none
	}{
		{"the largest variable", map[string]string{"V0": strings.Repeat("x", most-len("V0="))}, ""},
		{"one byte more", map[string]string{"V0": strings.Repeat("x", most-len("V0=")+1)}, `the environment is too large: "V0" has 131072 bytes, and a variable can have 131071`},
		{"nearly two megabytes", numbered(15, 130_000), ""},
		{"more", numbered(17, 130_000), "the environment is too large: it has 2210075 bytes, and can have 2097152"},
		{"20,000 variables", numbered(20_000, 1), "the environment is too large: it has 20000 variables, and can have 4096"},
	} {
		check := func(how string, err error, exit int, text string) {
			t.Helper()
			switch {
			case tt.want == "" && (err != nil || exit != 0):
				t.Errorf("%s, %s: %d %q %v", tt.name, how, exit, text, err)
			case tt.want != "" && (cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%s, %s: %v", tt.name, how, err)
			}
		}
		// A program that the program starts gets it, too.
		res, err := sbx.Commands().Exec(ctx, []string{"/bin/sh", "-c", "/bin/true; [ -n \"$V0\" ]"}, cubby.WithEnv(tt.env))
		if res == nil {
			res = &cubby.CommandResult{}
		}
		check("command", err, res.ExitCode, res.Stderr)
		ex, err := sbx.RunCode(ctx, "import subprocess; subprocess.run(['/bin/true'], check=True)", cubby.WithEnv(tt.env))
		if ex == nil {
			ex = &cubby.Execution{}
		}
		check("code", err, ex.ExitCode, fmt.Sprint(ex.Error))
	}
	_, err := sbx.Commands().Exec(ctx, []string{"/bin/true", strings.Repeat("x", 1<<20)})
	if cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), "an argument has 1048576 bytes, and can have 131071: put it into a file") {
		t.Errorf("a long argument: %v", err)
	}
}
