//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestServeNet: what a client of E2B gets that does not say what network it wants is
// for --net to say; who says it gets that.
func TestServeNet(t *testing.T) {
	if testing.Short() {
		t.Skip("starts sandboxes")
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer web.Close()
	port := web.Listener.Addr().(*net.TCPAddr).Port
	for _, tt := range []struct {
		name string
		args []string
		want map[string]string // by the request's fields
	}{
		{"as it is", nil, map[string]string{``: "hello", `,"allow_internet_access":false`: "refused"}},
		{"closed", []string{"--net", "closed"}, map[string]string{
			``: "refused", `,"allow_internet_access":true`: "hello",
			`,"network":{"allowOut":["host.cubby.internal"],"denyOut":["0.0.0.0/0"]}`: "hello"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := testenv.Serve(t, append([]string{"--host-port", fmt.Sprint(port)}, tt.args...)...)
			client, err := cubby.NewClient(cubby.Config{APIURL: server.URL, SandboxURL: server.URL, APIKey: server.Key})
			if err != nil {
				t.Fatal(err)
			}
			for fields, want := range tt.want {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v2/sandboxes", strings.NewReader(`{"templateID":"base"`+fields+`}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-API-Key", server.Key)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				var made struct{ SandboxID string }
				err = json.NewDecoder(resp.Body).Decode(&made)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusCreated {
					t.Fatalf("%s: %s, %v", fields, resp.Status, err)
				}
				sbx, err := client.Connect(t.Context(), made.SandboxID)
				if err != nil {
					t.Fatal(err)
				}
				ex, err := sbx.RunCode(t.Context(), fmt.Sprintf("import urllib.request as r\n"+
					"try: print(r.urlopen('http://host.cubby.internal:%d', timeout=20).read().decode())\nexcept OSError: print('refused')", port))
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.TrimSpace(ex.Stdout); got != want {
					t.Errorf("%q: %q, want %q", fields, got, want)
				}
				if err := sbx.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
