package server

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestHostNames(t *testing.T) {
	for _, test := range []struct {
		host string
		id   string
		port int
		ok   bool
	}{
		{"49983-iabc123.e2b.app", "iabc123", 49983, true},
		{"49983-iabc123-6532622b.e2b.app", "iabc123", 49983, true},
		{"49983-iabc123.e2b.app:8080", "iabc123", 49983, true},
		{"49983-IABC123.E2B.App.", "iabc123", 49983, true},
		{"3000-iabc.localhost", "iabc", 3000, true},
		{"1-i.x", "i", 1, true},
		{"65535-i.x", "i", 65535, true},

		// The form, but no port that there could be.
		{"0-iabc.x", "iabc", 0, true},
		{"00080-iabc.x", "iabc", 0, true},
		{"65536-iabc.x", "iabc", 0, true},
		{"99999999999999999999-iabc.x", "iabc", 0, true},

		// Somebody else's names.
		{"3000-iabc", "", 0, false},
		{"3000-iabc.", "", 0, false},
		{"localhost", "", 0, false},
		{"localhost:8080", "", 0, false},
		{"127.0.0.1:49983", "", 0, false},
		{"[::1]:49983", "", 0, false},
		{"api.e2b.app", "", 0, false},
		{"api.49983-iabc.e2b.app", "", 0, false},
		{"sandbox.e2b.app", "", 0, false},
		{"web-3000.example.com", "", 0, false},
		{"ip-10-0-0-1.internal", "", 0, false},
		{"10-0-0-1.nip.io", "", 0, false},
		{"3000-iabc-c-d.x", "", 0, false},
		{"3000-iabc-.x", "", 0, false},
		{"3000-.x", "", 0, false},
		{"-iabc.x", "", 0, false},
		{"3000--iabc.x", "", 0, false},
		{"+3000-iabc.x", "", 0, false},
		{"3000-i_abc.x", "", 0, false},
		{"3000-iäbc.x", "", 0, false},
		{"3000-iabc.x:http", "", 0, false},
		{"3000-iabc.x:", "", 0, false},
		{"3000-iabc.x:1:2", "", 0, false},
		{"3000-" + strings.Repeat("i", 60) + ".x", "", 0, false},
		{"", "", 0, false},
		{".", "", 0, false},
	} {
		t.Run(test.host, func(t *testing.T) {
			id, port, ok := parseHost(test.host)
			if id != test.id || port != test.port || ok != test.ok {
				t.Errorf("got %q, %d, %v", id, port, ok)
			}
		})
	}
}

var idForm = regexp.MustCompile(`^[a-z0-9]+$`) // E2B's

func FuzzHostName(f *testing.F) {
	for _, host := range []string{"49983-iabc.e2b.app:80", "49983-iabc-6532622b.x.", "[::1]:80", "127.0.0.1", "70000-i.x", "3000--i.x", "1-I.x"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, hostname string) {
		id, port, ok := parseHost(hostname)
		if !ok {
			if id != "" || port != 0 {
				t.Fatalf("%q, %d of a name that is none", id, port)
			}
			return
		}
		if !idForm.MatchString(id) || port < 0 || port > 65535 {
			t.Fatalf("%q, %d", id, port)
		}
		if port != 0 {
			again, p, ok := parseHost(fmt.Sprintf("%d-%s.any.domain", port, id))
			if !ok || again != id || p != port {
				t.Fatalf("its plain form is read as %q, %d, %v", again, p, ok)
			}
		}
	})
}

// sign makes E2B's signature of a path of /files.
func sign(path, operation, user, token, expires string) string {
	s := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		s += ":" + expires
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func TestSignatureIsE2Bs(t *testing.T) {
	const want = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := sign("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", ""); got != want {
		t.Errorf("got %s", got)
	}
}

func signedURL(path, operation, user, token, expires string) string {
	q := url.Values{"path": {path}, "signature": {sign(path, operation, user, token, expires)}}
	if user != "" {
		q.Set("username", user)
	}
	if expires != "" {
		q.Set("signature_expiration", expires)
	}
	return "/files?" + q.Encode()
}

// TestRouting tries each way to name a sandbox, and what must not be one.
func TestRouting(t *testing.T) {
	tn := newTown(t, Config{}, nil)
	a, b := tn.create(), tn.create()
	dead := tn.create()
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	route := func(id, port string) http.Header {
		return http.Header{protocol.HeaderSandboxID: {id}, protocol.HeaderSandboxPort: {port}}
	}
	token := func(s string) http.Header { return http.Header{protocol.HeaderAccessToken: {s}} }
	with := func(h http.Header, k, v string) http.Header { h.Set(k, v); return h }
	for _, test := range []struct {
		name, method, uri, host string
		header                  http.Header
		box                     *host.Sandbox
		port                    int
		status                  int // of a refusal; 0 with no box is the control plane
		says                    string
	}{
		{"headers", "GET", "/health", "", route(a.ID, "49983"), a, 49983, 0, ""},
		{"headers, any path", "GET", "/sandboxes", "", route(a.ID, "3000"), a, 3000, 0, ""},
		{"headers, id with a client", "GET", "/", "", route(a.ID+"-6532622b", "3000"), a, 3000, 0, ""},
		{"headers before the host", "GET", "/", "3000-" + b.ID + ".x", route(a.ID, "4000"), a, 4000, 0, ""},
		{"headers before the token", "GET", "/files", "", with(route(a.ID, "49983"), protocol.HeaderAccessToken, b.Token), a, 49983, 0, ""},
		{"headers, unknown", "GET", "/health", "", route("inone", "49983"), nil, 0, 502, "The sandbox was not found"},
		{"headers, gone", "GET", "/health", "", route(dead.ID, "49983"), nil, 0, 502, dead.ID},
		{"headers, unknown, live host", "GET", "/", "3000-" + b.ID + ".x", route("inone", "49983"), nil, 0, 502, "inone"},
		{"headers, no port", "GET", "/", "", route(a.ID, ""), nil, 0, 400, "missing header 'E2b-Sandbox-Port'"},
		{"headers, no id", "GET", "/", "", route("", "80"), nil, 0, 400, "missing header 'E2b-Sandbox-Id'"},
		{"headers, port 0", "GET", "/", "", route(a.ID, "0"), nil, 0, 400, "Invalid sandbox port"},
		{"headers, port too high", "GET", "/", "", route(a.ID, "65536"), nil, 0, 400, "Invalid sandbox port"},
		{"headers, port no number", "GET", "/", "", route(a.ID, "http"), nil, 0, 400, "Invalid sandbox port"},

		{"host", "GET", "/sandboxes", "3000-" + a.ID + ".e2b.app", nil, a, 3000, 0, ""},
		{"host, client", "POST", "/execute", "49999-" + a.ID + "-6532622b.sbx.local", nil, a, 49999, 0, ""},
		{"host, upper case and port", "GET", "/", "3000-" + strings.ToUpper(a.ID) + ".X:8080", nil, a, 3000, 0, ""},
		{"host, token of another", "GET", "/files", "49983-" + a.ID + ".x", token(b.Token), a, 49983, 0, ""},
		{"host, unknown", "GET", "/", "3000-inone.e2b.app", nil, nil, 0, 502, "inone"},
		{"host, gone", "GET", "/", "3000-" + dead.ID + ".e2b.app", nil, nil, 0, 502, dead.ID},
		{"host, no such port", "GET", "/", "70000-" + a.ID + ".e2b.app", nil, nil, 0, 400, "Invalid sandbox port"},
		{"absolute form", "GET", "http://49999-" + a.ID + ".dom/execute", "", nil, a, 49999, 0, ""},
		{"absolute form before the Host header", "GET", "http://49999-" + a.ID + ".dom/", "3000-" + b.ID + ".x", nil, a, 49999, 0, ""},
		{"absolute form, unknown", "GET", "http://49999-inone.dom/", "", nil, nil, 0, 502, "inone"},
		{"connect", "CONNECT", "3000-" + a.ID + ".dom:80", "", nil, a, 3000, 0, ""},
		{"connect, unknown", "CONNECT", "3000-inone.dom:80", "", nil, nil, 0, 502, "inone"},

		{"signed download", "GET", signedURL("/tmp/x y", "read", "", a.Token, ""), "", nil, a, 49983, 0, ""},
		{"signed head", "HEAD", signedURL("x", "read", "root", b.Token, ""), "", nil, b, 49983, 0, ""},
		{"signed upload, expires", "POST", signedURL("x", "write", "user", b.Token, "1999999999"), "", nil, b, 49983, 0, ""},
		{"signed, expired: envd says so", "GET", signedURL("x", "read", "", b.Token, "1"), "", nil, b, 49983, 0, ""},
		{"signed upload, asked by a browser", "OPTIONS", signedURL("x", "write", "", a.Token, ""), "", http.Header{"Access-Control-Request-Method": {"POST"}}, a, 49983, 0, ""},
		{"signed for reading, written", "POST", signedURL("x", "read", "", a.Token, ""), "", nil, nil, 0, 401, "invalid signature"},
		{"signed, another path", "GET", strings.Replace(signedURL("x", "read", "", a.Token, ""), "path=x", "path=y", 1), "", nil, nil, 0, 401, "invalid signature"},
		{"signed, expiry changed", "GET", strings.Replace(signedURL("x", "read", "", a.Token, "7"), "=7", "=8", 1), "", nil, nil, 0, 401, "invalid signature"},
		{"signed by a dead sandbox", "GET", signedURL("x", "read", "", dead.Token, ""), "", nil, nil, 0, 401, "invalid signature"},
		{"signed with no token", "GET", signedURL("x", "read", "", "", ""), "", nil, nil, 0, 401, "invalid signature"},
		{"signed, malformed", "GET", "/files?path=x&signature=v1_%21", "", nil, nil, 0, 401, "invalid signature"},
		{"signed, endless path", "GET", signedURL(strings.Repeat("x", 9000), "read", "", a.Token, ""), "", nil, nil, 0, 401, "invalid signature"},
		{"files without anything", "GET", "/files?path=x", "", nil, nil, 0, 401, "missing signature query parameter"},
		{"signed and a token: the token decides", "GET", signedURL("x", "read", "", a.Token, ""), "", token(b.Token), b, 49983, 0, ""},

		{"token, files", "GET", "/files?path=x", "", token(a.Token), a, 49983, 0, ""},
		{"token, processes", "POST", "/process.Process/Start", "", token(b.Token), b, 49983, 0, ""},
		{"token, health", "GET", "/health", "", token(b.Token), b, 49983, 0, ""},
		{"token, execute", "POST", "/execute", "", token(a.Token), a, 49999, 0, ""},
		{"token, contexts", "POST", "/contexts/x/restart", "", token(a.Token), a, 49999, 0, ""},
		{"token of a dead sandbox", "POST", "/process.Process/Start", "", token(dead.Token), nil, 0, 502, "The sandbox was not found"},
		{"wrong token", "GET", "/health", "", token("x"), nil, 0, 502, "The sandbox was not found"},
		{"token, a path of the control plane", "GET", "/sandboxes", "", token(a.Token), nil, 0, 0, ""},

		{"control plane", "GET", "/health", "", nil, nil, 0, 0, ""},
		{"control plane, localhost", "GET", "/sandboxes", "localhost:8080", nil, nil, 0, 0, ""},
		{"control plane, address", "GET", "/sandboxes", "127.0.0.1:8080", nil, nil, 0, 0, ""},
		{"control plane, api host", "GET", "/sandboxes", "api.e2b.app", nil, nil, 0, 0, ""},
		{"control plane, envd's path without any name", "POST", "/process.Process/Start", "", nil, nil, 0, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, test.method, test.uri, test.host, test.header)
			got, refused := tn.server.route(r)
			switch {
			case test.box != nil:
				if got == nil || got.info.ID != test.box.ID || got.port != test.port {
					t.Errorf("got %+v, refused %+v", got, refused)
				}
			case test.status != 0:
				if got != nil || refused == nil {
					t.Fatalf("got %+v, refused %+v", got, refused)
				}
				w := httptest.NewRecorder()
				refused.write(w)
				var body struct{ Code int }
				if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != test.status ||
					body.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			case got != controlPlane || refused != nil:
				t.Errorf("got %+v, refused %+v", got, refused)
			}
		})
	}
}

// request makes a request as the server's parser would.
func request(t *testing.T, method, uri, host string, header http.Header) *http.Request {
	t.Helper()
	if host == "" {
		host = "server.test:8080"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, uri, host)
	_ = header.Write(&b)
	b.WriteString("\r\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(b.String())))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// FuzzRoute sends any header there is to a server with two sandboxes: a request
// reaches one only by its id, its token or its signature.
func FuzzRoute(f *testing.F) {
	tn := newTown(f, Config{}, nil)
	a, b := tn.create(), tn.create()
	names := strings.NewReplacer("{a}", a.ID, "{b}", b.ID, "{ta}", a.Token, "{tb}", b.Token, "{signed}", signedURL("x", "read", "", a.Token, ""))
	for _, raw := range []string{
		"GET http://49983-{a}.x/files?signature=v1_x HTTP/1.1\r\nHost: 1-{b}.x\r\n\r\n",
		"CONNECT 49983-{a}.x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET x:http:/init HTTP/1.1\r\nHost: 49983-{b}.x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: {a}\r\nE2b-Sandbox-Port: 1\r\n\r\n",
		"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nX-Access-Token: {tb}\r\n\r\n",
		"GET {signed} HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		raw = names.Replace(raw)
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		got, refused := tn.server.route(r)
		switch {
		case got != nil && refused != nil:
			t.Fatal("a sandbox and a refusal")
		case got != nil && got != controlPlane:
			named := strings.Contains(strings.ToLower(raw), got.info.ID) || strings.Contains(raw, got.info.Token)
			signed := got.info.ID == a.ID && r.URL.Query().Get("signature") == sign("x", "read", "", a.Token, "")
			if got.port < 1 || got.port > 65535 || !named && !signed {
				t.Fatalf("%s:%d by %q", got.info.ID, got.port, raw)
			}
		case refused != nil && (refused.code.HTTPStatus() < 400 || refused.message == ""):
			t.Fatalf("%+v", refused)
		}
	})
}

// TestForeignHosts: as a proxy the server is for its sandboxes and itself only.
func TestForeignHosts(t *testing.T) {
	tn := newTown(t, Config{Domain: "cubby.test"}, nil)
	addr := tn.Listener.Addr().String()
	port := addr[strings.LastIndexByte(addr, ':'):]
	for uri, want := range map[string]int{
		"http://example.com/":                         http.StatusForbidden,
		"http://example.com:9/health":                 http.StatusForbidden,
		"http://169.254.169.254/latest/":              http.StatusForbidden,
		"http://3000-inone.example.com/":              http.StatusBadGateway,
		"http://3000-inone.cubby.test/":               http.StatusBadGateway,
		"http://api.cubby.test/health":                http.StatusOK,
		"http://sandbox.cubby.test/health":            http.StatusOK,
		"http://evilcubby.test/health":                http.StatusForbidden,
		"http://" + addr + "/health":                  http.StatusOK,
		"http://some-name-of-ours" + port + "/health": http.StatusOK,
	} {
		t.Run(uri, func(t *testing.T) {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", uri, nil)
			if got := do(t, tn.proxied(), r); got.status != want {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	for authority, want := range map[string]string{
		"example.com:443":           "403",
		"169.254.169.254:80":        "403",
		"3000-inone.cubby.test:80":  "502",
		"3000-inone.example.com:80": "502",
		"api.cubby.test:443":        "501",
		"api.cubby.test:80":         "200",
	} {
		t.Run("CONNECT "+authority, func(t *testing.T) {
			c := tn.dial()
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", authority)
			line, err := bufio.NewReader(c).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+want) {
				t.Errorf("%q %v", line, err)
			}
		})
	}
}
