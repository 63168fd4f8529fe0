//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func kill(s *server, b box) {
	// It may have been killed by the test; the context of the test is over.
	try(context.Background(), http.DefaultClient, "DELETE", s.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", s.Key)
}

// credential is a value that no sandbox must see.
const credential = "sk-cubby-0123456789abcdef"

// withSecret is a network in which the API of the world can be reached with the secret
// "api-key", and another host without.
func withSecret(header string) map[string]any {
	return map[string]any{"allowOut": []string{apiName, otherName}, "denyOut": []string{"0.0.0.0/0"}, "rules": map[string]any{
		apiName: []any{map[string]any{"transform": map[string]any{"headers": map[string]any{header: "Bearer ${e2b.secrets.API-Key}"}}}},
	}}
}

// TestSecretsStayOutside: programs in a sandbox call an API with a key that is not in it.
func TestSecretsStayOutside(t *testing.T) {
	w := newWorld(t, "--log-level", "debug")
	s := w.server
	secret := call(t, http.DefaultClient, "POST", s.URL+"/secrets", map[string]any{"name": "api-key", "value": credential}, "X-API-KEY", s.Key)
	if secret.Status != http.StatusCreated || strings.Contains(string(secret.Body), credential) {
		t.Fatalf("%d %s", secret.Status, secret.Body)
	}
	b := w.sandbox(t, withSecret("Authorization"))
	w.files = repository(t)

	t.Run("programs", func(t *testing.T) {
		for _, test := range []struct{ name, command string }{
			{"urllib", `python3 -c "import urllib.request as u; r = u.urlopen('https://` + apiName + `/'); print(r.headers, r.read().decode())"`},
			{"requests", `python3 -c "import requests; r = requests.get('https://` + apiName + `/'); print(r.headers, r.text)"`},
			{"node", `node -e "fetch('https://` + apiName + `/').then(async (r) => console.log(...r.headers, await r.text()))"`},
			{"curl", `curl -sSi https://` + apiName + `/`},
			{"git", `git clone -q https://` + apiName + `/repo.git /tmp/cloned && cat /tmp/cloned/file`},
			{"own header", `curl -sSi -H 'Authorization: Bearer guess' -H 'authorization: Basic Z3Vlc3M6' https://` + apiName + `/`},
		} {
			t.Run(test.name, func(t *testing.T) {
				if test.name == "requests" && w.run(t, b, `python3 -c "import requests"`).Exit != 0 {
					t.Skip("no requests for the sandbox's Python")
				}
				out := w.run(t, b, test.command)
				if out.Exit != 0 || strings.Contains(out.Stdout+out.Stderr, credential) || strings.Contains(out.Stdout+out.Stderr, credential[3:]) {
					t.Errorf("%+v", out)
				}
				seen := w.requests()
				if len(seen) == 0 {
					t.Fatal("no request came")
				}
				for _, r := range seen {
					if got := r.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer "+credential || !r.TLS || r.At != worldAPI+":443" {
						t.Errorf("%+v", r)
					}
				}
				if test.name != "git" && !strings.Contains(out.Stdout, strings.Repeat("*", len(credential))) {
					t.Errorf("what the host gave back was not taken out: %s", out.Stdout)
				}
			})
		}
	})

	t.Run("nothing inside has it", func(t *testing.T) {
		out := w.run(t, b, `env; cat /etc/cubby/* /proc/self/environ /proc/1/environ /etc/resolv.conf 2>/dev/null; grep -rl '`+credential[3:]+`' /home /tmp /etc /run 2>/dev/null`)
		if strings.Contains(out.Stdout, credential) || strings.Contains(out.Stdout, "/tmp/") {
			t.Error(out.Stdout)
		}
	})

	t.Run("nobody else gets it", func(t *testing.T) {
		came := 0
		for _, attack := range []string{
			`curl -sSk https://` + otherName + `/`,    // another host
			`curl -sS http://` + apiName + `/`,        // another protocol
			`curl -sS http://` + apiName + `:8080/`,   // another port
			`curl -sSk https://` + apiName + `:8443/`, // another port, with TLS
			`curl -sS http://` + apiName + `:443/`,    // no TLS
			`curl -sSk --resolve ` + apiName + `:443:$(getent ahostsv4 ` + otherName + ` | head -1 | cut -d' ' -f1) https://` + apiName + `/`, // the name at another's address
			`curl -sSk --connect-to ` + otherName + `:443:` + apiName + `:443 https://` + otherName + `/`,                                     // another name there
			`curl -sSk -H 'Host: ` + otherName + `' https://` + apiName + `/`,                                                                 // another authority inside
			`curl -sS --request-target http://` + otherName + `/ https://` + apiName + `/`,                                                    // the absolute form of another
			`curl -sS -X CONNECT --request-target ` + otherName + `:443 https://` + apiName + `/`,
			`curl -sS -H 'Connection: Authorization' https://` + apiName + `/hop`, // named as one of this hop alone
		} {
			out := w.run(t, b, attack)
			for _, r := range w.requests() {
				came++
				if r.Path == "/hop" {
					if got := r.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer "+credential {
						t.Errorf("%s: the API gets %q", attack, got)
					}
				} else if strings.Contains(fmt.Sprint(r), credential) {
					t.Errorf("%s: %+v", attack, r)
				}
			}
			if strings.Contains(out.Stdout+out.Stderr, credential) {
				t.Errorf("%s: the sandbox gets it: %+v", attack, out)
			}
		}
		if came < 5 { // what goes to another host, protocol or port without the secret arrives there
			t.Errorf("only %d requests came", came)
		}
	})

	t.Run("the name server lies", func(t *testing.T) {
		// A host without the name's certificate gets nothing, whatever leads there.
		w.mu.Lock()
		w.names[apiName] = worldSecond
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			w.names[apiName] = worldAPI
			w.mu.Unlock()
			if out := w.run(t, b, "for i in $(seq 100); do curl -sSf https://"+apiName+"/ && exit; sleep 0.1; done; exit 1"); out.Exit != 0 {
				t.Errorf("after the truth is told again: %+v", out)
			}
			w.requests()
		}()
		got := impostor(t, worldSecond+":443")
		out := w.run(t, b, "sleep 2; curl -sSk https://"+apiName+"/") // the answer before lives for a second
		if !strings.Contains(out.Stdout, "the host cannot be reached") || len(w.requests()) > 0 {
			t.Errorf("%+v", out)
		}
		if n := got(); n == 0 {
			t.Error("nobody came, so nothing was tested")
		}
	})

	t.Run("neither API nor log tells it", func(t *testing.T) {
		for _, path := range []string{"/sandboxes/" + b.ID, "/v2/sandboxes", "/sandboxes/" + b.ID + "/network", "/v2/sandboxes/" + b.ID + "/logs", "/secrets", "/secrets/api-key"} {
			a := call(t, http.DefaultClient, "GET", s.URL+path, nil, "X-API-KEY", s.Key)
			if a.Status != http.StatusOK || strings.Contains(string(a.Body), credential) {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
		}
		if log := s.log.tail(100 << 20); strings.Contains(log, credential) || !strings.Contains(log, "network flow") {
			t.Error("the log has the secret, or nothing of flows")
		}
		for _, pid := range s.processes(t) {
			for _, file := range []string{"cmdline", "environ"} {
				if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)); err == nil && strings.Contains(string(text), credential) {
					t.Errorf("%s of process %d has it", file, pid)
				}
			}
		}
		_ = filepath.WalkDir(s.DataDir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), credential) {
					t.Errorf("%s has it", path)
				}
			}
			return nil
		})
	})

	t.Run("another team's rule does not get it", func(t *testing.T) {
		key, _ := s.newKey(t, "others")
		a := call(t, http.DefaultClient, "POST", s.URL+"/v2/sandboxes", map[string]any{"templateID": "base", "network": withSecret("Authorization")}, "X-API-KEY", key)
		if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "Secret 'api-key' not found") {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		if a := call(t, http.DefaultClient, "GET", s.URL+"/secrets/api-key", nil, "X-API-KEY", key); a.Status != http.StatusNotFound {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	})

	t.Run("a change holds at once", func(t *testing.T) {
		// A program that keeps its connection, too.
		const kept = `python3 - <<'E'
import http.client, ssl, time
def get(c):
    c.request("GET", "/kept")
    c.getresponse().read()
c = http.client.HTTPSConnection("` + apiName + `")
get(c)
open("/tmp/first", "w").close()
import os
while not os.path.exists("/tmp/changed"): time.sleep(0.05)
try: get(c)
except Exception:
    c = http.client.HTTPSConnection("` + apiName + `")
    get(c)
E`
		ended := make(chan outcome, 1)
		go func() {
			out, _ := run(t.Context(), http.DefaultClient, s.URL, command{Text: kept}, b.routed(portEnvd)...)
			ended <- out
		}()
		if out := w.run(t, b, "for i in $(seq 400); do [ -e /tmp/first ] && exit; sleep 0.05; done; exit 1"); out.Exit != 0 {
			w.run(t, b, "touch /tmp/changed")
			t.Fatalf("%+v", <-ended)
		}
		if a := call(t, http.DefaultClient, "POST", s.URL+"/secrets/api-key", map[string]any{"value": "another-" + credential}, "X-API-KEY", s.Key); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		w.run(t, b, "touch /tmp/changed")
		if out := <-ended; out.Exit != 0 {
			t.Errorf("%+v", out)
		}
		seen := w.requests()
		if len(seen) != 2 || seen[0].Header.Get("Authorization") != "Bearer "+credential || seen[1].Header.Get("Authorization") != "Bearer another-"+credential {
			t.Errorf("%+v", seen)
		}
		if a := call(t, http.DefaultClient, "DELETE", s.URL+"/secrets/api-key", nil, "X-API-KEY", s.Key); a.Status != http.StatusNoContent {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if out := w.run(t, b, "curl -sS https://"+apiName+"/"); out.Exit == 0 || len(w.requests()) > 0 {
			t.Errorf("after its removal: %+v", out)
		}
		a := call(t, http.DefaultClient, "GET", s.URL+"/sandboxes/"+b.ID+"/network", nil, "X-API-KEY", s.Key)
		if !strings.Contains(string(a.Body), `need the secret \"api-key\", which is not there`) {
			t.Errorf("why is not said: %s", a.Body)
		}
	})
}

// TestSecretsBelow: a rule for the names below one gives its headers to these, and not to
// what looks like them.
func TestSecretsBelow(t *testing.T) {
	w := newWorld(t)
	const others = "other-0123456789"
	rule := func(value string) []any {
		return []any{map[string]any{"transform": map[string]any{"headers": map[string]any{"X-Key": value}}}}
	}
	b := w.sandbox(t, map[string]any{
		"allowOut": []string{"*." + apexName, apexName, evilName}, "denyOut": []string{"0.0.0.0/0"},
		"rules": map[string]any{"*." + apexName: rule(credential), otherName: rule(others)},
	})
	for _, test := range []struct {
		command string
		came    string // where a request comes to; empty: nowhere
		key     string
	}{
		{"https://" + apiName + "/", worldAPI + ":443", credential},
		{"https://" + deepName + "/", worldAPI + ":443", credential},
		{"https://API.Cubby-World.COM/", worldAPI + ":443", credential},
		{"https://" + apiName + "./", worldAPI + ":443", credential},
		{"https://" + otherName + "/", worldOther + ":443", others}, // the closer rule
		{"-k https://" + apexName + "/", worldOther + ":443", ""},
		{"-k https://" + evilName + "/", worldOther + ":443", ""},
		{"http://" + apiName + "/", worldAPI + ":80", ""},
		{"-k https://" + apiName + ":8443/", worldAPI + ":8443", ""},
		// One name below inside a connection to another.
		{"-H 'Host: " + otherName + "' https://" + apiName + "/", "", ""},
		{"-k --connect-to " + evilName + ":443:" + apiName + ":443 https://" + evilName + "/", "", ""},
		{"-k --resolve " + deepName + ":443:$(getent ahostsv4 " + evilName + " | head -1 | cut -d' ' -f1) https://" + deepName + "/", "", ""},
	} {
		out := w.run(t, b, "curl -sS --max-time 20 "+test.command)
		seen := w.requests()
		if test.came == "" {
			if len(seen) > 0 {
				t.Errorf("%s: %+v, %+v", test.command, out, seen)
			}
			continue
		}
		if len(seen) != 1 || seen[0].At != test.came || seen[0].Header.Get("X-Key") != test.key || out.Exit != 0 || strings.Contains(out.Stdout, "0123456789") {
			t.Errorf("%s: %+v, %+v", test.command, out, seen)
		}
	}
	a := call(t, http.DefaultClient, "POST", w.server.URL+"/v2/sandboxes",
		map[string]any{"templateID": "base", "network": map[string]any{"rules": map[string]any{"*.com": rule(credential)}}}, "X-API-KEY", w.server.Key)
	if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "anybody can have a host below this name") || strings.Contains(string(a.Body), credential) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// repository is a bare one as a plain web server has it.
func repository(t *testing.T) http.Handler {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `set -e; cd "$0"; git init -q work; cd work
echo content > file; git add file; git -c user.name=a -c user.email=a@example.com commit -qm one
git clone -q --bare . ../repo.git; cd ../repo.git; git update-server-info`, dir).CombinedOutput()
	if err != nil {
		t.Skipf("git: %v %s", err, out)
	}
	return http.FileServer(http.Dir(dir))
}
