//go:build linux

package guest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestHostToken: from the first /init on, only the host may say what a guest is
// to do, whether or not its sandbox has a token for clients, and whoever knows it.
func TestHostToken(t *testing.T) {
	for _, first := range []string{`{"cubbyHostToken":"H"}`, `{"cubbyHostToken":"H","accessToken":"T"}`} {
		t.Run(first, func(t *testing.T) {
			b := newBox(t)
			if resp, text := b.do("POST", "/init", strings.NewReader(first)); resp.StatusCode != http.StatusNoContent {
				t.Fatal(resp.Status, text)
			}
			for name, test := range map[string]struct {
				header http.Header
				status int
			}{
				"nothing":                    {nil, http.StatusUnauthorized},
				"the client's token":         {http.Header{protocol.HeaderAccessToken: {"T"}}, http.StatusUnauthorized},
				"another token for the host": {http.Header{protocol.HeaderHostToken: {"h"}}, http.StatusUnauthorized},
				"the host's token":           {http.Header{protocol.HeaderHostToken: {"H"}}, http.StatusNoContent},
			} {
				req, err := http.NewRequest("POST", b.envd.URL+"/init", strings.NewReader(`{"cubbyHostToken":"H"}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = test.header.Clone()
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != test.status {
					t.Errorf("%s: %s, want %d", name, resp.Status, test.status)
				}
			}
			if resp, _ := b.do("POST", "/cubby/oom", strings.NewReader("{}")); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("oom: %s", resp.Status)
			}
		})
	}
}
