//go:build linux

package attacks

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

//go:embed testdata/network-attacks.txtar
var data []byte

// header is an attack's first line: the policies under which it is tried, and what
// names it.
var header = regexp.MustCompile(`^# under ([a-z, ]+)$`)

type attack struct {
	name     string
	policies []string
	code     string
	want     string // what the code prints
}

// read returns the prelude and the attacks. A file of the archive is an attack: its
// first line says under which policies, the code follows, and after a line "# prints"
// what it is to print.
func read(t *testing.T) (prelude string, all []attack) {
	t.Helper()
	for _, f := range txtar.Parse(data).Files {
		text := string(f.Data)
		if f.Name == "prelude.py" {
			prelude = text
			continue
		}
		first, rest, _ := strings.Cut(text, "\n")
		under := header.FindStringSubmatch(first)
		code, want, ok := strings.Cut(rest, "# prints\n")
		if under == nil || !ok {
			t.Fatalf("%s: not in the form of an attack", f.Name)
		}
		all = append(all, attack{f.Name, strings.Split(under[1], ", "), code, strings.ReplaceAll(want, "# ", "")})
	}
	return prelude, all
}

// TestAttacks tries every attack in a sandbox of each policy that it is meant for.
func TestAttacks(t *testing.T) {
	prelude, all := read(t)
	if len(all) < 40 {
		t.Fatalf("%d attacks", len(all))
	}
	w := newWorld(t)
	testenv.CheckLeaks(t)
	t.Setenv("SSL_CERT_FILE", w.roots)
	c, err := embedded.Open(t.Context(), embedded.Config{
		Binary: testenv.Cubby(t), Python: "/usr/bin/python3", Reach: []string{outside}, HostPorts: []int{w.hostPort}, Resolvers: []string{w.resolver},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	policies := w.policies()
	machines := map[string]*cubby.Sandbox{}
	replace := strings.NewReplacer("CANARY", strconv.Itoa(w.canaryPort), "HOSTPORT", strconv.Itoa(w.hostPort), "OWN_ADDRESSES", fmt.Sprintf("%q", w.own))
	machine := func(t *testing.T, policy string) *cubby.Sandbox {
		if sbx := machines[policy]; sbx != nil {
			return sbx
		}
		n, ok := policies[policy]
		if !ok {
			t.Fatalf("there is no policy %q", policy)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		sbx, err := c.Create(ctx, cubby.WithNetwork(n), cubby.WithTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		machines[policy] = sbx
		run(t, sbx, replace.Replace(prelude))
		return sbx
	}
	for _, a := range all {
		for _, policy := range a.policies {
			t.Run(a.name+"/"+policy, func(t *testing.T) {
				sbx := machine(t, policy)
				w.begin()
				ex := run(t, sbx, replace.Replace(a.code))
				want := strings.ReplaceAll(a.want, "POLICY", policy)
				if ex.Stdout != want || ex.Error != nil {
					t.Errorf("it printed\n%swant\n%s%v", ex.Stdout, want, ex.Error)
				}
				for _, got := range w.leaks() {
					t.Error("what must not get out did: ", got)
				}
			})
		}
	}
}

func run(t *testing.T, sbx *cubby.Sandbox, code string) *cubby.Execution {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ex, err := sbx.RunCode(ctx, code, cubby.WithTimeout(100*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return ex
}
