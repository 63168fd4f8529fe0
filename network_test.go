package cubby_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

// networks are what a network is in E2B's words, in a create and in a change.
var networks = []struct {
	name    string
	network cubby.Network
	create  string // behind the timeout
	change  string
}{
	{"closed", cubby.Network{}, `"allow_internet_access":false}`, `{"allow_internet_access":false}`},
	{"open", cubby.Network{Open: true}, `"allow_internet_access":true}`, `{"allow_internet_access":true}`},
	{"some", cubby.Network{Allow: []string{"pypi.org:443", "*.example.com", "192.0.2.0/24", "@npm"}},
		`"allow_internet_access":false,"network":{"allowOut":["pypi.org:443","*.example.com","192.0.2.0/24","@npm"],"denyOut":["0.0.0.0/0"]}}`,
		`{"allow_internet_access":false,"allowOut":["pypi.org:443","*.example.com","192.0.2.0/24","@npm"],"denyOut":["0.0.0.0/0"]}`},
	{"all but addresses", cubby.Network{Open: true, Deny: []string{"192.0.2.1", "198.51.100.0/24"}},
		`"allow_internet_access":true,"network":{"denyOut":["192.0.2.1","198.51.100.0/24"]}}`,
		`{"allow_internet_access":true,"denyOut":["192.0.2.1","198.51.100.0/24"]}`},
	{"all but names and ports", cubby.Network{Open: true, Deny: []string{"192.0.2.1", "example.com", "192.0.2.2:25"}},
		`"allow_internet_access":true,"network":{"denyOut":["192.0.2.1"],"cubbyDenyHosts":["example.com","192.0.2.2:25"]}}`,
		`{"allow_internet_access":true,"denyOut":["192.0.2.1"],"cubbyDenyHosts":["example.com","192.0.2.2:25"]}`},
	{"exceptions", cubby.Network{Open: true, Allow: []string{"a.example.com"}, Deny: []string{"192.0.2.0/24"}},
		`"allow_internet_access":true,"network":{"allowOut":["a.example.com"],"cubbyDenyHosts":["192.0.2.0/24"]}}`,
		`{"allow_internet_access":true,"allowOut":["a.example.com"],"cubbyDenyHosts":["192.0.2.0/24"]}`},
	{"headers", cubby.Network{Allow: []string{"api.example.com"}, Headers: []cubby.SecretHeader{
		{"API.example.com.", "Authorization", "Bearer x"}, {"api.example.com", "X-Org", "42"}}},
		`"allow_internet_access":false,"network":{"allowOut":["api.example.com"],"denyOut":["0.0.0.0/0"],` +
			`"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer x","X-Org":"42"}}}]}}}`,
		`{"allow_internet_access":false,"allowOut":["api.example.com"],"denyOut":["0.0.0.0/0"],` +
			`"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer x","X-Org":"42"}}}]}}`},
}

// rulesServer keeps what it was asked last, and answers a change as the test says.
type rulesServer struct {
	body    string
	create  string // the answer to a create
	refusal string // of a change, and of a create if that has no answer
	ended   int
}

func (f *rulesServer) client(t *testing.T) *cubby.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		f.body = string(b)
		switch {
		case r.Method == http.MethodDelete:
			f.ended++
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodPost && f.create != "":
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, f.create)
		case f.refusal != "":
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, f.refusal)
		case r.Method+r.URL.Path == "PUT/sandboxes/isbx1/network":
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"code":404,"message":"it ended: its timeout was over"}`)
		}
	}))
	t.Cleanup(srv.Close)
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL, SandboxURL: srv.URL, APIKey: "e2b_k"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const ofCubby, ofOthers = `{"sandboxID":"isbx1","cubbyLimits":{"memoryMB":2}}`, `{"sandboxID":"isbx1"}`

func TestNetworkOnTheWire(t *testing.T) {
	for _, tt := range networks {
		t.Run(tt.name, func(t *testing.T) {
			f := &rulesServer{create: ofCubby}
			sbx, err := f.client(t).Create(t.Context(), cubby.WithNetwork(tt.network))
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"templateID":"code-interpreter-v1","timeout":300,` + tt.create; f.body != want {
				t.Errorf("created with %s\nwant %s", f.body, want)
			}
			if err := sbx.SetNetwork(t.Context(), tt.network); err != nil {
				t.Fatal(err)
			}
			if f.body != tt.change {
				t.Errorf("changed with %s\nwant %s", f.body, tt.change)
			}
		})
	}
}

// What means nothing, or would have no effect, is refused before anything is sent.
func TestNetworkThatMeansNothing(t *testing.T) {
	header := func(h cubby.SecretHeader) cubby.Network {
		return cubby.Network{Open: true, Headers: []cubby.SecretHeader{h}}
	}
	for name, tt := range map[string]struct {
		network cubby.Network
		want    string
	}{
		"empty":             {cubby.Network{Allow: []string{"a.com", ""}}, "Network.Allow[1]: \"\": it is empty"},
		"URL":               {cubby.Network{Allow: []string{"https://a.com"}}, "write the host alone"},
		"two in one":        {cubby.Network{Allow: []string{"a.com,b.com"}}, "an entry of its own"},
		"NUL":               {cubby.Network{Allow: []string{"evil.com\x00.ok.com"}}, "control character"},
		"long":              {cubby.Network{Allow: []string{strings.Repeat("a", 2000)}}, "too long"},
		"bad denied":        {cubby.Network{Open: true, Deny: []string{" "}}, "Network.Deny[0]"},
		"denied and closed": {cubby.Network{Allow: []string{"*.a.com"}, Deny: []string{"b.a.com"}}, "set Network.Open, or leave Deny out"},
		"allowed and open":  {cubby.Network{Open: true, Allow: []string{"a.com"}}, "leave Network.Open out"},
		"header not allowed": {cubby.Network{Allow: []string{"*.b.com", "b.com"}, Headers: []cubby.SecretHeader{{"a.com", "N", "v"}}},
			"allow a.com, too"},
		"header of names below, not allowed": {cubby.Network{Allow: []string{"a.com", "evila.com", "*.eu.b.com"}, Headers: []cubby.SecretHeader{{"*.a.com", "N", "v"}}},
			"allow *.a.com, too"},
		"header of a port":     {header(cubby.SecretHeader{"a.com:443", "N", "v"}), "one name without a port"},
		"header of all":        {header(cubby.SecretHeader{"*", "N", "v"}), "one name without a port"},
		"header of a part":     {header(cubby.SecretHeader{"a.*.com", "N", "v"}), "one name without a port"},
		"header without host":  {header(cubby.SecretHeader{"", "N", "v"}), "one name"},
		"header without name":  {header(cubby.SecretHeader{"a.com", "", "v"}), "no name of a header"},
		"header with a colon":  {header(cubby.SecretHeader{"a.com", "N:", "v"}), "no name of a header"},
		"header without value": {header(cubby.SecretHeader{"a.com", "N", ""}), `the header "N" has no value`},
		"value with a line end": {header(cubby.SecretHeader{"a.com", "N", "secret\r\nHost: b"}),
			"has a line end"},
		"header twice": {cubby.Network{Open: true, Headers: []cubby.SecretHeader{{"a.com", "N", "v"}, {"A.com.", "n", "w"}}}, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &rulesServer{create: ofCubby}
			c := f.client(t)
			_, err := c.Create(t.Context(), cubby.WithNetwork(tt.network))
			if cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), tt.want) || f.body != "" {
				t.Errorf("got %v, and sent %q", err, f.body)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("the value is in %v", err)
			}
			sbx, err := c.Create(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f.body = ""
			if err := sbx.SetNetwork(t.Context(), tt.network); cubby.CodeOf(err) != cubby.CodeInvalidArgument || f.body != "" {
				t.Errorf("got %v, and sent %q", err, f.body)
			}
		})
	}
}

// Headers of hosts that an entry may stand for are the server's to judge.
func TestHeadersOfHostsThatMayBeAllowed(t *testing.T) {
	for _, entry := range []string{"*", "*.example.com", "a.example.com", "A.EXAMPLE.com.:443", "@pypi", "192.0.2.0/24", "192.0.2.1:443", "2001:db8::1"} {
		f := &rulesServer{create: ofCubby}
		for _, host := range []string{"a.example.com", "*.Example.com"} {
			n := cubby.Network{Allow: []string{entry}, Headers: []cubby.SecretHeader{{host, "N", "value"}}}
			if _, err := f.client(t).Create(t.Context(), cubby.WithNetwork(n)); err != nil {
				t.Errorf("%s for %s: %v", entry, host, err)
			}
		}
	}
}

// A server of another kind takes no notice of what is Cubby's alone: the sandbox would
// reach what is denied.
func TestDeniedNamesNeedACubby(t *testing.T) {
	f := &rulesServer{create: ofOthers}
	c, denied := f.client(t), cubby.Network{Open: true, Deny: []string{"example.com"}}
	if _, err := c.Create(t.Context(), cubby.WithNetwork(denied)); cubby.CodeOf(err) != cubby.CodeUnimplemented || f.ended != 1 {
		t.Errorf("got %v, and %d sandboxes were ended", err, f.ended)
	}
	sbx, err := c.Create(t.Context(), cubby.WithNetwork(cubby.Network{Open: true, Deny: []string{"192.0.2.1"}}))
	if err != nil {
		t.Fatal(err)
	}
	f.body = ""
	if err := sbx.SetNetwork(t.Context(), denied); cubby.CodeOf(err) != cubby.CodeUnimplemented || f.body != "" {
		t.Errorf("got %v, and sent %q", err, f.body)
	}
}

func TestSetNetworkOfASandboxThatEnded(t *testing.T) {
	f := &rulesServer{create: `{"sandboxID":"isbx2"}`}
	sbx, err := f.client(t).Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = sbx.SetNetwork(t.Context(), cubby.Network{})
	if cubby.CodeOf(err) != cubby.CodeSandboxGone || !strings.Contains(err.Error(), "set network: it ended: its timeout was over") {
		t.Errorf("got %v", err)
	}
}

// A server may say anything of what it was sent, and programs print what they have.
func TestSecretValuesAreNotShown(t *testing.T) {
	const value = `Bearer sk-"42"<secret>`
	n := cubby.Network{Open: true, Headers: []cubby.SecretHeader{{"a.com", "Authorization", value}}}
	check := func(where, text string) {
		t.Helper()
		if strings.Contains(text, "sk-") || strings.Contains(text, "<secret>") || !strings.Contains(text, "a.com") {
			t.Errorf("%s: %s", where, text)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		check(verb, fmt.Sprintf(verb, n))
		check(verb, fmt.Sprintf(verb, &n.Headers[0]))
	}
	b, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	check("JSON", string(b))
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("", "network", n, "header", n.Headers[0])
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "network", n, "header", n.Headers[0])
	check("log", log.String())

	for _, message := range []string{value, `sk-"42"<secret>`, fmt.Sprintf("%q", value)} {
		b, err := json.Marshal(map[string]any{"code": 400, "message": "a.com: bad value " + message, "hint": "not " + message})
		if err != nil {
			t.Fatal(err)
		}
		f := &rulesServer{refusal: string(b)}
		c := f.client(t)
		_, err = c.Create(t.Context(), cubby.WithNetwork(n))
		check("create", err.Error())
		if cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), "bad value") {
			t.Errorf("got %v", err)
		}
		f.create = ofCubby
		sbx, err := c.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		check("change", sbx.SetNetwork(t.Context(), n).Error())
	}
}
