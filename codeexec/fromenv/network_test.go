//go:build linux

package fromenv_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/container"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/fromenv"
)

// What a server is asked for, or why nothing runs.
func TestNetwork(t *testing.T) {
	closed, some := &cubby.Network{}, &cubby.Network{Allow: []string{"a.com"}}
	for name, tt := range map[string]struct {
		kind, net, allow string
		cfg              fromenv.Config
		sent             string // in the request; or
		refused          string // in the error, and nothing is sent
	}{
		"nothing":        {kind: "e2b", sent: `"allow_internet_access":false}`},
		"closed":         {kind: "e2b", net: "closed", sent: `"allow_internet_access":false}`},
		"open":           {kind: "cube", net: " Open\n", sent: `"allow_internet_access":true}`},
		"some":           {kind: "e2b", allow: "@pypi, a.com:443,,", sent: `"allow_internet_access":false,"network":{"allowOut":["@pypi","a.com:443"],`},
		"some, closed":   {kind: "e2b", net: "closed", allow: "a.com", sent: `"allowOut":["a.com"]`},
		"the program":    {kind: "e2b", net: "open", cfg: fromenv.Config{Network: some}, sent: `"allowOut":["a.com"]`},
		"the executor's": {kind: "e2b", net: "open", cfg: fromenv.Config{Network: some, E2B: e2b.Config{Network: closed}}, sent: `"allow_internet_access":false}`},
		"no mode":        {kind: "e2b", net: "ajar", refused: `CUBBY_NET is "ajar" (want closed or open)`},
		"both":           {kind: "e2b", net: "open", allow: "a.com", refused: "CUBBY_NET is open, and CUBBY_ALLOW allows some hosts"},
		"no host":        {kind: "e2b", allow: "https://a.com", refused: "write the host alone"},
		"local":          {kind: "unsafe_local", net: "closed", refused: "the executor unsafe_local cannot hold what CUBBY_NET says"},
		"local, open":    {kind: "unsafe_local", net: "open", refused: "the executor unsafe_local cannot hold what CUBBY_NET says"},
		"container":      {kind: "container", net: "open", refused: "the executor container cannot hold what CUBBY_NET says: Docker's networks have no rules"},
		"container, some": {kind: "container", cfg: fromenv.Config{Network: some},
			refused: "the executor container cannot hold what Config.Network says"},
		"container with a network": {kind: "container", net: "closed", cfg: fromenv.Config{Container: container.Config{Network: "bridge"}},
			refused: "the executor container cannot hold what CUBBY_NET says"},
		"container, closed": {kind: "container", net: "closed", refused: "broken://daemon"}, // it got as far as Docker
	} {
		t.Run(name, func(t *testing.T) {
			clear(t)
			var sent string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				sent = string(b)
				w.WriteHeader(http.StatusForbidden)
				io.WriteString(w, `{"code":403,"message":"not today"}`)
			}))
			defer srv.Close()
			for variable, value := range map[string]string{
				fromenv.Variable: tt.kind, fromenv.NetVariable: tt.net, fromenv.AllowVariable: tt.allow,
				"E2B_API_URL": srv.URL, "E2B_API_KEY": "k", "CUBE_TEMPLATE_ID": "base", "DOCKER_HOST": "broken://daemon",
			} {
				t.Setenv(variable, value)
			}
			e, err := fromenv.New(t.Context(), tt.cfg)
			if err == nil {
				e.Close()
				t.Fatal("it runs")
			}
			if tt.refused != "" && (!strings.Contains(err.Error(), tt.refused) || sent != "") {
				t.Errorf("got %v, and sent %s", err, sent)
			}
			if tt.sent != "" && (!strings.Contains(sent, tt.sent) || !strings.Contains(err.Error(), "not today")) {
				t.Errorf("got %v, and sent %s", err, sent)
			}
		})
	}
}
