//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestInit: what the guest knows after a sequence of calls of /init.
func TestInit(t *testing.T) {
	first := `{"cubbyHostToken":"H"}`
	whole := `{"cubbyHostToken":"H","accessToken":"T","envVars":{"A":"1"},"defaultUser":"root","defaultWorkdir":"/tmp/",` +
		`"cubbySandboxID":"i0","cubbyTemplateID":"base","cubbyLimits":{"memoryMB":300,"cpus":1.5,"diskMB":700,"pids":90}}`
	all := settings.Settings{
		HostToken: "H", Token: "T", Env: map[string]string{"A": "1"}, User: "root", Workdir: "/tmp",
		Identity: settings.Identity{SandboxID: "i0", TemplateID: "base"}, Limits: protocol.Limits{MemoryMB: 300, CPUs: 1.5, DiskMB: 700, PIDs: 90},
	}
	but := func(change func(*settings.Settings)) settings.Settings {
		s := all
		change(&s)
		return s
	}
	for _, test := range []struct {
		name  string
		calls []string // with the token H
		want  settings.Settings
	}{
		{"the least", []string{first}, settings.Settings{HostToken: "H"}},
		{"everything", []string{whole}, all},
		{"everything, twice", []string{whole, whole}, all},
		{"one after the other", []string{
			first, `{"accessToken":"T"}`, `{"envVars":{"A":"1"}}`, `{"defaultUser":"root"}`, `{"defaultWorkdir":"/tmp"}`, `{"cubbySandboxID":"i0"}`,
			`{"cubbyTemplateID":"base"}`, `{"cubbyLimits":{"memoryMB":300}}`, `{"cubbyLimits":{"cpus":1.5,"diskMB":700}}`, `{"cubbyLimits":{"pids":90}}`,
		}, all},
		{"an empty body changes nothing", []string{whole, ``}, all},
		{"an empty object changes nothing", []string{whole, `{}`}, all},
		{"what is empty changes nothing", []string{whole, `{"cubbyHostToken":"","accessToken":"","defaultUser":"","defaultWorkdir":"","cubbySandboxID":"",` +
			`"cubbyTemplateID":"","cubbyLimits":{"memoryMB":0,"cpus":0,"diskMB":0,"pids":0},"cubbyWarm":[]}`}, all},
		{"null changes nothing", []string{whole, `{"cubbyHostToken":null,"envVars":null,"cubbyLimits":null,"cubbyWarm":null,"timestamp":null}`}, all},
		{"variables are replaced", []string{whole, `{"envVars":{"B":"2"}}`}, but(func(s *settings.Settings) { s.Env = map[string]string{"B": "2"} })},
		{"no variables any more", []string{whole, `{"envVars":{}}`}, but(func(s *settings.Settings) { s.Env = map[string]string{} })},
		{"another sandbox", []string{whole, `{"cubbySandboxID":"i1","cubbyTemplateID":"mine"}`}, but(func(s *settings.Settings) { s.Identity = settings.Identity{SandboxID: "i1", TemplateID: "mine"} })},
		{"other limits", []string{whole, `{"cubbyLimits":{"memoryMB":600,"pids":20}}`}, but(func(s *settings.Settings) { s.Limits.MemoryMB, s.Limits.PIDs = 600, 20 })},
		{"another token of the host", []string{whole, `{"cubbyHostToken":"H2"}`}, but(func(s *settings.Settings) { s.HostToken = "H2" })},
		{"the old token of the host", []string{whole, `{"cubbyHostToken":"H2"}`, `{"accessToken":"T2"}`}, but(func(s *settings.Settings) { s.HostToken = "H2" })},
		{"half of it is invalid", []string{whole, `{"cubbySandboxID":"i1","cubbyHostToken":"H2","cubbyLimits":{"pids":-1}}`}, all},
		{"what another version knows", []string{whole, `{"cubbyMood":"good","cubbySandboxID":"i1"}`}, but(func(s *settings.Settings) { s.Identity.SandboxID = "i1" })},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newUninitialised(t)
			for _, body := range test.calls {
				b.do("POST", "/init", strings.NewReader(body), protocol.HeaderHostToken, "H")
			}
			if got := *b.g.settings.Load(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// TestInitIsChecked: a request is taken as a whole or refused as a whole.
func TestInitIsChecked(t *testing.T) {
	b := newBox(t)
	long := strings.Repeat("x", 128<<10-1)
	for body, want := range map[string]int{
		`{"defaultUser":"root","defaultWorkdir":"/tmp"}`: 204,
		`{"defaultUser":"user"}`:                         204,
		`{"timestamp":"2026-01-02T03:04:05Z"}`:           204,
		`{"cubbyWarm":["cobol"]}`:                        204,
		``:                                               204,
		`{"defaultUser":"nobody"}`:                       400,
		`{"defaultWorkdir":"relative"}`:                  400,
		`{"envVars":{"A=B":"x"}}`:                        400,
		`{"envVars":{"A":"\u0000"}}`:                     400,
		`{"cubbySandboxID":"a\u0000b"}`:                  400,
		`{"cubbyTemplateID":"` + long + `"}`:             400,
		`{"cubbyHostToken":"two words"}`:                 400,
		`{"cubbyHostToken":"é"}`:                         400,
		`{"accessToken":"a\nb"}`:                         400,
		`{"accessToken":"` + long + `"}`:                 400,
		`{"cubbyLimits":{"memoryMB":-1}}`:                400,
		`{"cubbyLimits":{"diskMB":9000000000000}}`:       400,
		`{"cubbyLimits":{"cpus":-0.5}}`:                  400,
		`{"cubbyLimits":{"pids":1.5}}`:                   400,
		`{"cubbyLimits":{"pids":99999999}}`:              400,
		`{"timestamp":"today"}`:                          400,
		`{"envVars":{"A":1}}`:                            400,
		`[]`:                                             400,
		`{`:                                              400,
		`{} and more`:                                    400,
		strings.Repeat(" ", maxInit+1):                   413,
	} {
		before := b.g.settings.Load()
		resp, text := b.do("POST", "/init", strings.NewReader(body), protocol.HeaderHostToken, guesttest.HostToken)
		if resp.StatusCode != want {
			t.Errorf("%.80s: %s %s", body, resp.Status, text)
		}
		if want != 204 && b.g.settings.Load() != before {
			t.Errorf("%.80s: was refused and changed something", body)
		}
	}
}

// TestBeforeInit: until the host has said whose sandbox it is, a guest says that it
// lives and nothing else.
func TestBeforeInit(t *testing.T) {
	b := newUninitialised(t)
	for _, call := range []struct {
		url, method, path string
		status            int
	}{
		{b.envd.URL, "GET", "/health", 204},
		{b.code.URL, "GET", "/health", 200},
		{b.envd.URL, "GET", "/files?path=/etc/passwd", 503},
		{b.envd.URL, "POST", "/files?path=f", 503},
		{b.envd.URL, "GET", "/envs", 503},
		{b.envd.URL, "GET", "/metrics", 503},
		{b.envd.URL, "POST", "/cubby/oom", 503},
		{b.envd.URL, "POST", "/process.Process/List", 503},
		{b.envd.URL, "POST", "/filesystem.Filesystem/Stat", 503},
		{b.envd.URL, "GET", "/nothing", 503},
		{b.code.URL, "POST", "/execute", 503},
		{b.code.URL, "GET", "/contexts", 503},
		{b.code.URL, "POST", "/contexts", 503},
		{b.code.URL, "POST", "/init", 404},
		{b.envd.URL, "POST", "/init", 400}, // without a token of the host it is none
	} {
		req, err := http.NewRequest(call.method, call.url+call.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := guesttest.Plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != call.status {
			t.Errorf("%s %s: %s, want %d", call.method, call.path, resp.Status, call.status)
		}
	}
}

// TestHostToken: from the first /init on, only the host may say what a guest is
// to do, whether or not its sandbox has a token for clients, and whoever knows it.
func TestHostToken(t *testing.T) {
	for _, first := range []string{`{"cubbyHostToken":"H"}`, `{"cubbyHostToken":"H","accessToken":"T"}`} {
		t.Run(first, func(t *testing.T) {
			b := newUninitialised(t)
			for _, call := range []struct {
				name, body, header, token string
				status                    int
			}{
				{"the first", first, "X-Nothing", "", 204},
				{"nothing", `{"cubbyHostToken":"H"}`, "X-Nothing", "", 401},
				{"the client's token", `{"cubbyHostToken":"H"}`, protocol.HeaderAccessToken, "T", 401},
				{"another token for the host", `{"cubbyHostToken":"h"}`, protocol.HeaderHostToken, "h", 401},
				{"the host's token", `{"cubbyHostToken":"H"}`, protocol.HeaderHostToken, "H", 204},
				{"a new one by the old one", `{"cubbyHostToken":"H2"}`, protocol.HeaderHostToken, "H", 204},
				{"the old one", `{"cubbyHostToken":"H"}`, protocol.HeaderHostToken, "H", 401},
				{"the new one", `{}`, protocol.HeaderHostToken, "H2", 204},
			} {
				b := &box{T: t, envd: b.envd}
				if resp, text := b.do("POST", "/init", strings.NewReader(call.body), call.header, call.token); resp.StatusCode != call.status {
					t.Errorf("%s: %s %s", call.name, resp.Status, text)
				}
			}
			for token, status := range map[string]int{"": 401, "H": 401, "H2": 200} {
				if resp, _ := b.do("POST", "/cubby/oom", strings.NewReader("{}"), protocol.HeaderHostToken, token); resp.StatusCode != status {
					t.Errorf("oom with %q: %s", token, resp.Status)
				}
			}
		})
	}
}

// TestInitsAtTheSameTime: of two hosts that replace the same token one wins, and
// all of the settings are the winner's.
func TestInitsAtTheSameTime(t *testing.T) {
	b := newBox(t)
	h := b.g.Envd()
	was := guesttest.HostToken
	for round := range 200 {
		var wg sync.WaitGroup
		names := []string{fmt.Sprint("one", round), fmt.Sprint("two", round)}
		status := make([]int, len(names))
		for i, name := range names {
			body, err := json.Marshal(protocol.InitRequest{
				HostToken: name, AccessToken: name, SandboxID: name, TemplateID: name, EnvVars: map[string]string{"A": name},
				Limits: protocol.Limits{PIDs: 1 + i},
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				r := httptest.NewRequest("POST", "/init", bytes.NewReader(body))
				r.Header.Set(protocol.HeaderHostToken, was)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				status[i] = w.Code
			})
		}
		wg.Wait()
		s := b.g.settings.Load()
		i := slices.Index(names, s.HostToken)
		if i < 0 || status[i] != 204 || status[1-i] != 401 {
			t.Fatalf("%v: the token is %q", status, s.HostToken)
		}
		if want := names[i]; s.Token != want || s.Identity != (settings.Identity{SandboxID: want, TemplateID: want}) ||
			s.Env["A"] != want || s.Limits.PIDs != 1+i {
			t.Fatalf("a bit of each: %+v", s)
		}
		was = s.HostToken
	}
}

// TestAnotherSandbox: kernels that run, those that are started, and commands see
// who the sandbox has become, and keep what they had.
func TestAnotherSandbox(t *testing.T) {
	b := newBox(t)
	tell := map[string]string{
		settings.Python: `
import os
x = globals().get('x', 0) + 1
print(x, *[os.environ.get(k, '-') for k in ('E2B_SANDBOX', 'E2B_SANDBOX_ID', 'E2B_TEMPLATE_ID', 'A', 'B')])`,
		settings.JavaScript: `
var x = (globalThis.x || 0) + 1
const { E2B_SANDBOX, E2B_SANDBOX_ID, E2B_TEMPLATE_ID, A, B } = process.env
console.log(x, ...[E2B_SANDBOX, E2B_SANDBOX_ID, E2B_TEMPLATE_ID, A, B].map((v) => v || '-'))`,
		settings.Bash: `x=$((x + 1)); bash -c 'echo $0 $E2B_SANDBOX ${E2B_SANDBOX_ID:--} ${E2B_TEMPLATE_ID:--} ${A:--} ${B:--}' $x`,
	}
	if b.g.settings.Config.Interpreters[settings.JavaScript] == "" {
		delete(tell, settings.JavaScript)
	}
	for i, step := range []struct {
		told protocol.InitRequest
		want string
	}{
		{protocol.InitRequest{Warm: []string{settings.Python, settings.Bash}}, "true - - - -"},
		{protocol.InitRequest{SandboxID: "i1", TemplateID: "base", EnvVars: map[string]string{"A": "1"}}, "true i1 base 1 -"},
		{protocol.InitRequest{SandboxID: "i1", TemplateID: "base", EnvVars: map[string]string{"A": "1"}}, "true i1 base 1 -"},
		{protocol.InitRequest{SandboxID: "i'2 $x", EnvVars: map[string]string{"B": "2"}}, "true i'2 $x base - 2"},
		{protocol.InitRequest{SandboxID: "i1", EnvVars: map[string]string{}}, "true i1 base - -"},
	} {
		b.tell(step.told)
		for _, language := range slices.Sorted(maps.Keys(tell)) {
			if a := b.run(guesttest.Call{Language: language, Code: tell[language]}); a.Stdout != fmt.Sprintln(i+1, step.want) {
				t.Errorf("step %d: %s says %q %q", i, language, a.Stdout, a.Stderr)
			}
		}
		fresh := b.context(settings.Python)
		if a := b.run(guesttest.Call{Context: fresh, Code: tell[settings.Python]}); a.Stdout != fmt.Sprintln(1, step.want) {
			t.Errorf("step %d: a fresh kernel says %q", i, a.Stdout)
		}
		if resp, text := guesttest.Do(t, b.code, "DELETE", "/contexts/"+fresh, nil); resp.StatusCode != 200 {
			t.Fatal(resp.Status, text)
		}
		said := b.command(`echo 1 $E2B_SANDBOX ${E2B_SANDBOX_ID:--} ${E2B_TEMPLATE_ID:--} ${A:--} ${B:--}`)
		if said != fmt.Sprintln(1, step.want) {
			t.Errorf("step %d: a command says %q", i, said)
		}
	}
	// What the code says itself stands, also between its calls.
	b.run(guesttest.Call{Code: "os.environ['E2B_SANDBOX_ID'] = 'mine'"})
	if a := b.run(guesttest.Call{Code: "print(os.environ['E2B_SANDBOX_ID'])"}); a.Stdout != "mine\n" {
		t.Errorf("%q %q", a.Stdout, a.Stderr)
	}
	if a := b.run(guesttest.Call{Code: "print(os.environ['E2B_SANDBOX_ID'])", Env: map[string]string{"E2B_SANDBOX_ID": "call"}}); a.Stdout != "call\n" {
		t.Errorf("%q %q", a.Stdout, a.Stderr)
	}
}

// context makes a context and returns its id.
func (b *box) context(language string) string {
	b.Helper()
	resp, text := guesttest.Do(b, b.code, "POST", "/contexts", strings.NewReader(fmt.Sprintf(`{"language":%q}`, language)))
	var c protocol.Context
	if err := json.Unmarshal([]byte(text), &c); err != nil || resp.StatusCode != 200 {
		b.Fatal(resp.Status, text)
	}
	return c.ID
}

// command returns what a shell prints that runs script.
func (b *box) command(script string) string {
	b.Helper()
	client := envdconnect.NewProcessClient(guesttest.Plain, b.envd.URL)
	stream, err := client.Start(b.Context(), connect.NewRequest(&envd.StartRequest{
		Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", script}},
	}))
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	var said []byte
	for stream.Receive() {
		said = append(said, stream.Msg().GetEvent().GetData().GetStdout()...)
	}
	if err := stream.Err(); err != nil {
		b.Fatal(err)
	}
	return string(said)
}

// FuzzInit tells hostile things: nothing fails but the request, which then changes
// nothing, and one that is taken is the same when it is repeated.
func FuzzInit(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"cubbyHostToken":"H2","accessToken":"T","cubbyWarm":["x"]}`, `{"envVars":{"A":"1"},"cubbyLimits":{"pids":1e400}}`,
		`{"defaultWorkdir":"/a/../b","cubbySandboxID":"i","cubbyTemplateID":"\ud800","cubbyLimits":{"memoryMB":300,"cpus":0.5,"diskMB":1,"pids":9}}`,
		`{"ENVVARS":{"":""},"timestamp":"2026-01-02T03:04:05Z"}`, `{"defaultUser":"root","defaultuser":"x"}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	// No interpreters: nothing is started, whatever is to be warm.
	g, err := New(context.Background(), settings.Config{
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), UserName: "user", Home: f.TempDir(), KernelDir: f.TempDir(),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(g.Close)
	h := g.Envd()
	f.Fuzz(func(t *testing.T, body string, known bool) {
		before := &settings.Settings{}
		if known {
			before = &settings.Settings{
				HostToken: "H", Token: "T", Env: map[string]string{"A": "1"}, User: "user", Workdir: "/",
				Identity: settings.Identity{SandboxID: "i", TemplateID: "t"}, Limits: protocol.Limits{PIDs: 7},
			}
		}
		g.settings.Set(before)
		send := func() int {
			r := httptest.NewRequest("POST", "/init", strings.NewReader(body))
			r.Header.Set(protocol.HeaderHostToken, g.settings.Load().HostToken)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			g.interpreter.Close() // for the kernels that nobody can start
			return w.Code
		}
		status := send()
		once := g.settings.Load()
		switch {
		case status >= 500:
			t.Fatal(status)
		case status != http.StatusNoContent:
			if once != before {
				t.Fatalf("%d, and %+v", status, once)
			}
			return
		case once.HostToken == "" || known && once.Token == "":
			t.Fatalf("a token is lost: %+v", once)
		case settings.CheckEnv(once.Env) != nil || once.Limits.PIDs < 0 || !(once.Limits.CPUs >= 0) ||
			once.Limits.MemoryMB < 0 || once.Limits.DiskMB < 0:
			t.Fatalf("%+v", once)
		}
		if status := send(); status != http.StatusNoContent || !reflect.DeepEqual(g.settings.Load(), once) {
			t.Fatalf("%d: %+v, then %+v", status, once, g.settings.Load())
		}
	})
}
