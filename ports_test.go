package cubby_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// recorder is a network in which every request is answered and written down.
type recorder struct {
	create string // the answer to it
	last   *http.Request
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.last = req
	body := "{}"
	if strings.Contains(req.URL.Path, "/sandboxes") {
		body = r.create
	}
	return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// TestAddresses: where requests go follows from the configuration as it does
// with E2B's own clients.
func TestAddresses(t *testing.T) {
	const plain = `{"sandboxID":"isbx1","envdAccessToken":"tok"}`
	for _, tt := range []struct {
		name               string
		cfg                cubby.Config
		env                map[string]string
		create             string
		api, files         string // URLs without path
		host, link, portTo string
	}{
		{"nothing", cubby.Config{}, nil, plain, "https://api.e2b.app", "https://sandbox.e2b.app",
			"80-isbx1.e2b.app", "https://49983-isbx1.e2b.app/files", "https://sandbox.e2b.app"},
		{"another cloud of E2B's", cubby.Config{}, map[string]string{"E2B_DOMAIN": "e2b.dev"}, plain, "https://api.e2b.dev", "https://sandbox.e2b.dev",
			"80-isbx1.e2b.dev", "https://49983-isbx1.e2b.dev/files", "https://sandbox.e2b.dev"},
		{"one server", cubby.Config{APIURL: "http://127.0.0.1:8080"}, nil, plain, "http://127.0.0.1:8080", "http://127.0.0.1:8080",
			"80-isbx1.localhost:8080", "http://127.0.0.1:8080/files", "http://127.0.0.1:8080"},
		{"one server, from the environment", cubby.Config{}, map[string]string{"E2B_API_URL": "https://cubby.example"}, plain, "https://cubby.example", "https://cubby.example",
			"80-isbx1.cubby.example", "https://cubby.example/files", "https://cubby.example"},
		{"two servers", cubby.Config{APIURL: "http://api.x", SandboxURL: "http://box.x/prefix/"}, nil, plain, "http://api.x", "http://box.x",
			"80-isbx1.box.x", "http://box.x/prefix/files", "http://box.x"},
		{"a server that says its domain", cubby.Config{APIURL: "http://api.x"}, nil, `{"sandboxID":"isbx1","envdAccessToken":"tok","domain":"said.x"}`, "http://api.x", "http://api.x",
			"80-isbx1.said.x", "http://api.x/files", "http://api.x"},
		{"a server that says nonsense", cubby.Config{APIURL: "http://api.x"}, nil, `{"sandboxID":"isbx1","envdAccessToken":"tok","domain":"a/b@c"}`, "http://api.x", "http://api.x",
			"80-isbx1.api.x", "http://api.x/files", "http://api.x"},
		{"host names", cubby.Config{APIURL: "http://api.x", Domain: "cube.x:81"}, nil, plain, "http://api.x", "http://49983-isbx1.cube.x:81",
			"80-isbx1.cube.x:81", "http://49983-isbx1.cube.x:81/files", "http://80-isbx1.cube.x:81"},
		{"host names, from the environment", cubby.Config{}, map[string]string{"E2B_DOMAIN": "cube.x"}, plain, "https://api.cube.x", "https://49983-isbx1.cube.x",
			"80-isbx1.cube.x", "https://49983-isbx1.cube.x/files", "https://80-isbx1.cube.x"},
		{"host names that the server says", cubby.Config{Domain: "cube.x"}, nil, `{"sandboxID":"isbx1","envdAccessToken":"tok","domain":"said.x"}`, "https://api.cube.x", "https://49983-isbx1.said.x",
			"80-isbx1.said.x", "https://49983-isbx1.said.x/files", "https://80-isbx1.said.x"},
		{"a sandbox URL wins over a domain", cubby.Config{Domain: "cube.x", SandboxURL: "http://box.x"}, nil, plain, "https://api.cube.x", "http://box.x",
			"80-isbx1.cube.x", "http://box.x/files", "http://box.x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN", "E2B_API_KEY"} {
				t.Setenv(name, tt.env[name])
			}
			r := &recorder{create: tt.create}
			tt.cfg.Transport = r
			c, err := cubby.NewClient(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			at := func() string { return r.last.URL.Scheme + "://" + r.last.URL.Host }
			sbx, err := c.Create(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := at(); got != tt.api {
				t.Errorf("the API is at %s, want %s", got, tt.api)
			}
			if err := sbx.Files().Remove(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			if got := at(); got != tt.files {
				t.Errorf("files are at %s, want %s", got, tt.files)
			}
			if got := sbx.Host(80); got != tt.host {
				t.Errorf("host %s, want %s", got, tt.host)
			}
			if link, err := sbx.Files().DownloadURL("a b", time.Hour); err != nil || !strings.HasPrefix(link, tt.link+"?") ||
				!strings.Contains(link, "path=%2Fhome%2Fuser%2Fa+b&signature=v1_") || !strings.Contains(link, "signature_expiration=") {
				t.Errorf("link %s, %v, want %s", link, err, tt.link)
			}
			if _, err := (&http.Client{Transport: sbx.Transport(80)}).Get("http://anything/a%2Fb?q=1"); err != nil {
				t.Fatal(err)
			}
			if got := at(); got != tt.portTo {
				t.Errorf("port 80 is at %s, want %s", got, tt.portTo)
			}
			if !strings.HasSuffix(r.last.URL.EscapedPath(), "/a%2Fb") || r.last.URL.RawQuery != "q=1" || r.last.Host != "" && r.last.Host != r.last.URL.Host {
				t.Errorf("asked for %s at %q", r.last.URL, r.last.Host)
			}
			if h := r.last.Header; h.Get("E2b-Sandbox-Id") != "isbx1" || h.Get("E2b-Sandbox-Port") != "80" || h.Get("X-Access-Token") != "" {
				t.Errorf("headers %v", h)
			}
		})
	}
	for _, domain := range []string{"a/b", "a@b", "a:b", "a:0", ".", "a b", "é"} {
		if _, err := cubby.NewClient(cubby.Config{Domain: domain}); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("domain %q: %v", domain, err)
		}
	}
}

func TestLinksNeedAToken(t *testing.T) {
	c, err := cubby.NewClient(cubby.Config{APIURL: "http://x", Transport: &recorder{create: `{"sandboxID":"isbx1"}`}})
	if err != nil {
		t.Fatal(err)
	}
	sbx, err := c.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if link, err := sbx.Files().UploadURL("x", 0); cubby.CodeOf(err) != cubby.CodeUnimplemented {
		t.Errorf("got %q, %v", link, err)
	}
	if link, err := sbx.Files().UploadURL("x", -1); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("got %q, %v", link, err)
	}
}

// TestDialWithoutTunnels: servers that know no CONNECT say so in many ways.
func TestDialWithoutTunnels(t *testing.T) {
	for status, want := range map[int]cubby.Code{
		http.StatusNotFound: cubby.CodeUnimplemented, http.StatusMethodNotAllowed: cubby.CodeUnimplemented,
		http.StatusBadRequest: cubby.CodeUnimplemented, http.StatusForbidden: cubby.CodePermissionDenied,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect {
				io.WriteString(w, `{"sandboxID":"isbx1"}`)
				return
			}
			if r.Host != "81-isbx1.cubby:80" || r.Header.Get("E2b-Sandbox-Id") != "isbx1" || r.Header.Get("E2b-Sandbox-Port") != "81" {
				t.Errorf("asked for %s with %v", r.Host, r.Header)
			}
			w.WriteHeader(status)
		}))
		c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		sbx, err := c.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sbx.Dial(t.Context(), 81); cubby.CodeOf(err) != want {
			t.Errorf("%d: %v", status, err)
		}
		if _, err := sbx.Dial(t.Context(), 0); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("port 0: %v", err)
		}
		srv.CloseClientConnections()
		srv.Close()
	}
}

// TestPublicHost: a name to show to strangers, which is never the sandbox's own.
func TestPublicHost(t *testing.T) {
	for _, tt := range []struct {
		name, create string
		port         int
		want         string
		code         cubby.Code
	}{
		{"a public id", `{"sandboxID":"isbx1","cubbyPublicID":"ppub1"}`, 80, "80-ppub1.cube.x", 0},
		{"in the server's domain", `{"sandboxID":"isbx1","cubbyPublicID":"ppub1","domain":"said.x"}`, 80, "80-ppub1.said.x", 0},
		{"a server without", `{"sandboxID":"isbx1"}`, 80, "", cubby.CodeUnimplemented},
		{"a server that says nonsense", `{"sandboxID":"isbx1","cubbyPublicID":"a.b/c"}`, 80, "", cubby.CodeUnimplemented},
		{"the sandbox's own port", `{"sandboxID":"isbx1","cubbyPublicID":"ppub1"}`, 49999, "", cubby.CodeInvalidArgument},
		{"no port", `{"sandboxID":"isbx1","cubbyPublicID":"ppub1"}`, 0, "", cubby.CodeInvalidArgument},
	} {
		c, err := cubby.NewClient(cubby.Config{APIURL: "http://x", Domain: "cube.x", Transport: &recorder{create: tt.create}})
		if err != nil {
			t.Fatal(err)
		}
		sbx, err := c.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sbx.PublicHost(tt.port); got != tt.want || cubby.CodeOf(err) != tt.code {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}

// TestContextTokenIsAskedFor: the client sends its token to contexts, so it has
// the server ask for it, unless other clients are to use them, too.
func TestContextTokenIsAskedFor(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []cubby.CreateOption
		want string
	}{
		{"by default", nil, "required"},
		{"open contexts", []cubby.CreateOption{cubby.WithOpenContexts()}, ""},
	} {
		r := &recorder{create: `{"sandboxID":"isbx1","envdAccessToken":"tok"}`}
		c, err := cubby.NewClient(cubby.Config{APIURL: "http://x", Transport: r})
		if err != nil {
			t.Fatal(err)
		}
		sbx, err := c.Create(t.Context(), tt.opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.last.Header.Get("Cubby-Context-Token"); got != tt.want {
			t.Errorf("%s: the create says %q", tt.name, got)
		}
		if err := sbx.RemoveContext(t.Context(), &cubby.Context{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if got := r.last.Header.Get("X-Access-Token"); got != "tok" {
			t.Errorf("%s: contexts are sent the token %q", tt.name, got)
		}
	}
}
