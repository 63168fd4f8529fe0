//go:build linux

package e2b_test

import (
	"net/http"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// New sandboxes are closed unless the configuration opens them; one to attach to is
// changed only where it says something.
func TestNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		network *cubby.Network
		create  string // behind the timeout
		change  string
		allowed bool
	}{
		"none":   {nil, `"allow_internet_access":false}`, "", false},
		"closed": {&cubby.Network{}, `"allow_internet_access":false}`, `{"allow_internet_access":false}`, false},
		"open":   {&cubby.Network{Open: true}, `"allow_internet_access":true}`, `{"allow_internet_access":true}`, true},
		"some": {&cubby.Network{Allow: []string{"example.com"}},
			`"allow_internet_access":false,"network":{"allowOut":["example.com"],"denyOut":["0.0.0.0/0"]}}`,
			`{"allow_internet_access":false,"allowOut":["example.com"],"denyOut":["0.0.0.0/0"]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &foreign{}
			cfg := f.serve(t, e2b.Config{Network: tt.network})
			e := create(t, cfg)
			if f.count(`POST /v2/sandboxes {"templateID":"t","timeout":3600,`+tt.create) != 1 || f.count("PUT") != 0 {
				t.Errorf("got %q", f.requests)
			}
			if got := e.Engine().Describe().NetworkAllowed; got != tt.allowed {
				t.Errorf("NetworkAllowed is %v", got)
			}
			cfg.SandboxID = "iforeign"
			e = create(t, cfg)
			if want := min(len(tt.change), 1); f.count("PUT") != want || f.count("PUT /sandboxes/iforeign/network "+tt.change) != want {
				t.Errorf("got %q", f.requests)
			}
			if got := e.Engine().Describe().NetworkAllowed; got != (tt.allowed || tt.network == nil) {
				t.Errorf("attached, NetworkAllowed is %v", got)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		f := &foreign{}
		f.answer("PUT /sandboxes/iforeign/network", says(http.StatusNotFound, `{"code":404,"message":"no such sandbox"}`))
		cfg := f.serve(t, e2b.Config{SandboxID: "iforeign", Network: &cubby.Network{}})
		_, err := e2b.Create(t.Context(), cfg)
		wantCode(t, "Create", err, cubby.CodeSandboxGone)
	})
}
