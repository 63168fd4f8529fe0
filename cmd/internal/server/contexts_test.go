package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestContextToken: who may use the contexts of a sandbox with an access token.
// E2B's packages do not send it there, so it is asked for where a client said at
// the create that it does, or where the operator said so for all.
func TestContextToken(t *testing.T) {
	for _, sandbox := range []struct {
		name              string
		secure, asked     bool // of the create
		required          bool // by the operator
		without, withOwn  int  // status without the token, and with it
		withAnother       int
		executeWithoutOne int // executions are the guest's to refuse: here they pass
	}{
		{"of E2B's packages", true, false, false, 200, 200, 401, 200},
		{"of the Go client", true, true, false, 401, 200, 401, 200},
		{"of E2B's packages, where the operator wants it", true, false, true, 401, 200, 401, 200},
		{"without an access token", false, false, true, 200, 200, 200, 200},
	} {
		t.Run(sandbox.name, func(t *testing.T) {
			tn := newTown(t, Config{RequireContextToken: sandbox.required}, nil)
			req := host.CreateRequest{Secure: sandbox.secure}
			req.ContextToken = sandbox.asked
			box, err := tn.host.Create(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			const port = protocol.CodeInterpreterPort
			for _, call := range []struct{ method, path string }{
				{"GET", "/contexts"}, {"POST", "/contexts"}, {"POST", "/contexts/1/restart"}, {"DELETE", "/contexts/1"},
				{"GET", "//contexts"}, {"GET", "/%63ontexts"}, {"GET", "/execute/../contexts"}, {"GET", "/Contexts"}, {"GET", "/"},
			} {
				for _, try := range []struct {
					name, token string
					want        int
				}{{"no", "", sandbox.without}, {"its own", box.Token, sandbox.withOwn}, {"another", "0123", sandbox.withAnother}} {
					r := tn.to(box, port, call.method, call.path, nil)
					if try.token != "" {
						r.Header.Set(protocol.HeaderAccessToken, try.token)
					}
					byName := r.Clone(t.Context())
					byName.Host = "49999-" + box.ID + ".example.com"
					byName.Header.Del(protocol.HeaderSandboxID)
					byName.Header.Del(protocol.HeaderSandboxPort)
					for how, r := range map[string]*http.Request{"headers": r, "host name": byName} {
						if a := tn.do(r); a.status != try.want {
							t.Errorf("%s %s with %s token, by %s: %d, want %d: %s", call.method, call.path, try.name, how, a.status, try.want, a.body)
						}
					}
				}
			}
			for _, path := range []string{"/health", "/execute"} {
				if a := tn.do(tn.to(box, port, "POST", path, nil)); a.status != sandbox.executeWithoutOne {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			}
			// A tunnel to the port is no way round.
			tr := &http.Transport{DialContext: dialThrough(tn, "49999-"+box.ID+".example.com:80")}
			defer tr.CloseIdleConnections()
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://x/contexts", nil)
			if a := do(t, &http.Client{Transport: tr}, r); a.status != sandbox.without {
				t.Errorf("through a tunnel: %d %s", a.status, a.body)
			}
		})
	}
}

// TestCreateWithContextToken: the header of a create, and what it cannot be.
func TestCreateWithContextToken(t *testing.T) {
	for _, test := range []struct {
		path, header string
		status       int
		asks         bool
	}{
		{"/v2/sandboxes", "", 201, false},
		{"/v2/sandboxes", "required", 201, true},
		{"/v2/sandboxes", "yes", 400, false},
		{"/sandboxes", "required", 400, false}, // which has no access token unless it asks for one
	} {
		a := newAPI(t, nil)
		a.header.Set(protocol.HeaderContextToken, test.header)
		if c := a.call("POST", test.path, "{}"); c.status != test.status {
			t.Errorf("%+v: %d %s", test, c.status, c.body)
		}
		for _, box := range a.host.Live() {
			if box.ContextToken != test.asks {
				t.Errorf("%+v: %v", test, box.ContextToken)
			}
		}
	}
}

// TestPublicID: a name that is shown to others leads to the programs in a sandbox
// and to nothing else, and no answer to it tells the sandbox's id.
func TestPublicID(t *testing.T) {
	tn := newTown(t, Config{Keys: teamKeys{redKey: "red"}}, map[int]http.Handler{8000: http.HandlerFunc(echo)})
	box, other := tn.createFor("red"), tn.createFor("red")
	if box.PublicID == "" || box.PublicID == box.ID || box.PublicID == other.PublicID {
		t.Fatalf("public ids %q and %q", box.PublicID, other.PublicID)
	}
	for _, test := range []struct {
		name, path string
		port       int
		status     int
		says       string
	}{
		{"a program's port", "/x?y=1", 8000, 200, `"Machine":"` + box.ID},
		{"a port on which nothing listens", "/", 8001, 502, "port is not open"},
		{"envd", "/files?path=x", 49983, 403, "own programs only"},
		{"envd's health", "/health", 49983, 403, "own programs only"},
		{"contexts", "/contexts", 49999, 403, "own programs only"},
		{"executions", "/execute", 49999, 403, "own programs only"},
	} {
		r := tn.to(box, test.port, "GET", test.path, nil)
		r.Header.Set(protocol.HeaderSandboxID, box.PublicID)
		r.Header.Set(protocol.HeaderAccessToken, box.Token) // even so
		byName := r.Clone(t.Context())
		byName.Host = net.JoinHostPort(r.Header.Get(protocol.HeaderSandboxPort)+"-"+box.PublicID+".example.com", "80")
		byName.Header.Del(protocol.HeaderSandboxID)
		byName.Header.Del(protocol.HeaderSandboxPort)
		for how, r := range map[string]*http.Request{"headers": r, "host name": byName} {
			a := tn.do(r)
			if a.status != test.status || !strings.Contains(string(a.body), test.says) {
				t.Errorf("%s by %s: %d %s", test.name, how, a.status, a.body)
			}
			// (The fake program tells its machine; real ones do not know the id.)
			if test.status != 200 && strings.Contains(string(a.body)+headerText(a.header), box.ID) {
				t.Errorf("%s by %s tells the id: %s", test.name, how, a.body)
			}
		}
	}
	for _, port := range []string{"49983", "49999"} {
		if _, err := dialThrough(tn, port+"-"+box.PublicID+".example.com:80")(t.Context(), "tcp", ""); err == nil {
			t.Errorf("a tunnel leads to port %s", port)
		}
	}
	c, err := dialThrough(tn, "8000-"+box.PublicID+".example.com:80")(t.Context(), "tcp", "")
	if err != nil {
		t.Errorf("no tunnel leads to a program: %v", err)
	} else {
		c.Close()
	}
	t.Run("it is no name for the control plane", func(t *testing.T) {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", tn.URL+"/sandboxes/"+box.PublicID, nil)
		r.Header.Set(protocol.HeaderAPIKey, redKey)
		if a := tn.do(r); a.status != http.StatusNotFound {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	t.Run("a sandbox that is closed to the public stays so", func(t *testing.T) {
		closed := tn.createFor("red")
		closed.TrafficToken = "secret"
		r := tn.to(closed, 8000, "GET", "/", nil)
		r.Header.Set(protocol.HeaderSandboxID, closed.PublicID)
		if a := tn.do(r); a.status != http.StatusForbidden || strings.Contains(string(a.body), closed.ID) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	t.Run("it ends with the sandbox", func(t *testing.T) {
		if err := other.Kill(); err != nil {
			t.Fatal(err)
		}
		r := tn.to(other, 8000, "GET", "/", nil)
		r.Header.Set(protocol.HeaderSandboxID, other.PublicID)
		if a := tn.do(r); a.status != http.StatusBadGateway || strings.Contains(string(a.body), other.ID) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func headerText(h http.Header) string { v, _ := url.QueryUnescape(url.Values(h).Encode()); return v }

// dialThrough opens tunnels to authority.
func dialThrough(tn *town, authority string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		c := tn.dial()
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", authority)
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return c, err
	}
}
