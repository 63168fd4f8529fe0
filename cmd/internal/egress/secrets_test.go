package egress

import (
	"reflect"
	"strings"
	"testing"
)

func TestWithSecrets(t *testing.T) {
	values := map[string]string{"key": "sk-1", "other": "two", "empty": "", "broken": "a\nb", "long": strings.Repeat("x", 12<<10)}
	for _, test := range []struct {
		in      string
		want    string
		secrets []string
		missing string
		err     string // a part of it
	}{
		{in: "plain"},
		{in: "costs $5, {e2b}", want: "costs $5, {e2b}"},
		{in: "${e2b.secrets.key}", want: "sk-1", secrets: []string{"sk-1"}},
		{in: "Bearer ${e2b.secrets.KEY}", want: "Bearer sk-1", secrets: []string{"sk-1"}},
		{in: "${e2b.secrets.key}:${e2b.secrets.other};", want: "sk-1:two;", secrets: []string{"sk-1", "two"}},
		{in: "[${e2b.secrets.empty}]", want: "[]"},
		{in: "${e2b.secrets.key}${e2b.secrets.none}", missing: "none"},
		{in: "${e2b.secrets.}", err: "must be a reference to a secret"},
		{in: "${e2b.secrets.key", err: "must be a reference to a secret"},
		{in: "${e2b.secrets.${e2b.secrets.key}}", err: "must be a reference to a secret"},
		{in: "${e2b.identity.aws}", err: "must be a reference to a secret"},
		{in: "${e2b.secrets.broken}", err: "a secret in it has characters that headers cannot have"},
		{in: "${e2b.secrets.long}${e2b.secrets.long}", err: "longer than 16384 bytes"},
		{in: strings.Repeat("${e2b.secrets.key}", 17), err: "at most 16 references"},
	} {
		if test.want == "" && test.missing == "" && test.err == "" {
			test.want = test.in
		}
		rules := Rules{Open: true, Headers: []HeaderRule{{Host: "api.example.com", Headers: map[string]string{"X-Key": test.in}}}}
		got, err := rules.WithSecrets(values)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "sk-1") {
				t.Errorf("%s: %v, want %s", test.in, err, test.err)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		want := HeaderRule{Host: "api.example.com", Headers: map[string]string{"X-Key": test.want}, Secrets: test.secrets}
		if test.missing != "" {
			want = HeaderRule{Host: "api.example.com", Missing: test.missing}
		}
		if !reflect.DeepEqual(got.Headers[0], want) {
			t.Errorf("%s: %#v %q", test.in, got.Headers[0], got.Headers[0].Headers)
		}
		if rules.Headers[0].Headers["X-Key"] != test.in {
			t.Errorf("%s: what was written has changed", test.in)
		}
	}
	if got := (Rules{Headers: []HeaderRule{{Headers: map[string]string{"A": "${e2b.secrets.B}${e2b.secrets.a}", "C": "${e2b.secrets.b}"}}}}).
		SecretNames(); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("names %q", got)
	}
}

// TestMissingSecret: what would be sent without its header is not sent.
func TestMissingSecret(t *testing.T) {
	rules, err := Rules{Open: true, Allow: []string{"api.example.com", "*.example.com"},
		Headers: []HeaderRule{{Host: "api.example.com", Headers: map[string]string{"X-Key": "${e2b.secrets.gone}"}}}}.WithSecrets(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(rules, Operator{})
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Host("api.example.com", 443, TCP); d.Allowed || !strings.Contains(d.Reason, `the secret "gone", which is not there`) {
		t.Errorf("%+v", d)
	}
	for _, port := range []uint16{80, 8443} {
		if d := p.Host("api.example.com", port, TCP); !d.Allowed {
			t.Errorf("port %d, which gets no header: %+v", port, d)
		}
	}
	if d := p.Host("www.example.com", 443, TCP); !d.Allowed {
		t.Errorf("another host: %+v", d)
	}
}
