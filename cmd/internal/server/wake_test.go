package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// sleeper is a sandbox that is paused, and a server over TCP.
type sleeper struct {
	*api
	box   *host.Sandbox
	url   string
	slept int // machines that it had
}

// newSleeper pauses a sandbox with auto-resume and what body says besides.
func newSleeper(t *testing.T, path, body string, set func(*hosttest.Engine)) *sleeper {
	t.Helper()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, string(body)+" of "+r.URL.Path)
	})
	eng := &hosttest.Engine{Ports: map[int]http.Handler{3000: echo, protocol.EnvdPort: echo, protocol.CodeInterpreterPort: echo}}
	if set != nil {
		set(eng)
	}
	a, _ := newPausingAPI(t, func(cfg *host.Config) { cfg.Engine = eng })
	a.engine = eng
	var made protocol.Sandbox
	a.into(a.call("POST", path, `{"autoPause":true,"autoResume":{"enabled":true}`+body+`}`), http.StatusCreated, &made)
	box, err := a.host.Get(made.SandboxID)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a.handler)
	t.Cleanup(srv.Close)
	s := &sleeper{api: a, box: box, url: srv.URL}
	s.sleep()
	return s
}

func (s *sleeper) sleep() {
	s.t.Helper()
	if s.box.State() != host.StatePaused {
		if err := s.box.Pause(s.t.Context(), host.PauseOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.slept = len(s.engine.Machines())
}

// woken says whether a machine was made since sleep.
func (s *sleeper) woken() bool { return len(s.engine.Machines()) > s.slept }

func (s *sleeper) ask(method, path string, header http.Header, body string) answered {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if name := header.Get("Host"); name != "" {
		r.Host = name
		r.Header.Del("Host")
	}
	return do(s.t, http.DefaultClient, r)
}

// routing are the headers for a port, and further ones in pairs.
func (s *sleeper) routing(port int, more ...string) http.Header {
	h := http.Header{}
	h.Set(protocol.HeaderSandboxID, s.box.ID)
	h.Set(protocol.HeaderSandboxPort, strconv.Itoa(port))
	for i := 0; i+1 < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// way is a request to a sandbox that is paused.
type way struct {
	name, method, path string
	header             http.Header
	status             int // 200: it wakes the sandbox
}

// ways are to a sandbox whose ports are closed to the public.
func ways(s *sleeper) []way {
	const envd, code = protocol.EnvdPort, protocol.CodeInterpreterPort
	token, traffic := s.box.Token, s.box.TrafficToken
	past, future := strconv.FormatInt(time.Now().Unix()-5, 10), strconv.FormatInt(time.Now().Unix()+500, 10)
	with := s.routing
	byName := func(id string, port int, more ...string) http.Header {
		h := http.Header{"Host": {strconv.Itoa(port) + "-" + id + ".example.com"}}
		for i := 0; i+1 < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	const run = "/process.Process/Start"
	return []way{
		{"no token", "POST", run, with(envd), 401},
		{"a wrong token", "POST", run, with(envd, protocol.HeaderAccessToken, "x"+token[1:]), 401},
		{"the traffic token for envd", "POST", run, with(envd, protocol.HeaderTrafficToken, traffic), 401},
		{"the API key for envd", "POST", run, with(envd, "X-API-Key", redKey), 401},
		{"a path for the host", "POST", "/init", with(envd, protocol.HeaderAccessToken, token), 404},
		{"health", "GET", "/health", with(envd, protocol.HeaderAccessToken, token), 502},
		{"health without a token", "GET", "/health", with(envd), 502},
		{"health by HEAD", "HEAD", "/health", with(envd, protocol.HeaderAccessToken, token), 502},
		{"a question", "OPTIONS", run, with(envd, protocol.HeaderAccessToken, token), 502},
		{"files, nothing", "GET", "/files?path=x", with(envd), 401},
		{"files, a wrong signature", "GET", signedURL("x", "read", "", "x"+token[1:], ""), with(envd), 401},
		{"files, of another operation", "POST", signedURL("x", "read", "", token, ""), with(envd), 401},
		{"files, of another path", "GET", strings.Replace(signedURL("x", "read", "", token, ""), "path=x", "path=y", 1), with(envd), 401},
		{"files, expired", "GET", signedURL("x", "read", "", token, past), with(envd), 401},
		{"files, expired, without headers", "GET", signedURL("x", "read", "", token, past), nil, 401},
		{"files, a wrong token and a signature", "GET", signedURL("x", "read", "", token, ""), with(envd, protocol.HeaderAccessToken, "x"), 401},
		{"files, a method without signatures", "DELETE", signedURL("x", "read", "", token, ""), with(envd), 401},
		{"another path, a signature", "GET", strings.Replace(signedURL("x", "read", "", token, ""), "/files", "/envs", 1), with(envd), 401},
		{"code, no traffic token", "POST", "/execute", with(code, protocol.HeaderAccessToken, token), 403},
		{"code, no token", "POST", "/execute", with(code, protocol.HeaderTrafficToken, traffic), 401},
		{"code, health", "GET", "/health", with(code, protocol.HeaderTrafficToken, traffic, protocol.HeaderAccessToken, token), 502},
		{"code, another path", "GET", "/x", with(code, protocol.HeaderTrafficToken, traffic), 401},
		{"contexts, a wrong token", "GET", "/contexts", with(code, protocol.HeaderTrafficToken, traffic, protocol.HeaderAccessToken, "x"), 401},
		{"a port, no token", "GET", "/", with(3000), 403},
		{"a port, a wrong token", "GET", "/", with(3000, protocol.HeaderTrafficToken, "x"), 403},
		{"a port, the access token", "GET", "/", with(3000, protocol.HeaderAccessToken, token), 403},
		{"a port by its name", "GET", "/", byName(s.box.ID, 3000), 403},
		{"a port by its public name", "GET", "/", byName(s.box.PublicID, 3000), 403},
		{"envd by its public name", "POST", run, byName(s.box.PublicID, envd, protocol.HeaderAccessToken, token), 403},
		{"a browser's question", "OPTIONS", "/", with(3000, protocol.HeaderTrafficToken, traffic, "Access-Control-Request-Method", "GET"), 502},

		{"the token", "POST", run, with(envd, protocol.HeaderAccessToken, token), 200},
		{"the token alone", "POST", run, http.Header{protocol.HeaderAccessToken: {token}}, 200},
		{"files, the token", "GET", "/files?path=x", with(envd, protocol.HeaderAccessToken, token), 200},
		{"files, a signature", "POST", signedURL("x", "write", "", token, future), with(envd), 200},
		{"files, a signature alone", "GET", signedURL("x", "read", "user", token, ""), nil, 200},
		{"code", "POST", "/execute", with(code, protocol.HeaderTrafficToken, traffic, protocol.HeaderAccessToken, token), 200},
		{"contexts", "GET", "/contexts", with(code, protocol.HeaderTrafficToken, traffic), 200},
		{"a port", "GET", "/health", with(3000, protocol.HeaderTrafficToken, traffic), 200},
		{"a port by its name, with the token", "GET", "/", byName(s.box.ID, 3000, protocol.HeaderTrafficToken, traffic), 200},
		{"a port by its public name, with the token", "GET", "/", byName(s.box.PublicID, 3000, protocol.HeaderTrafficToken, traffic), 200},
	}
}

// TestWakeAttack: only a request that would be let in wakes a sandbox, by any way to it.
func TestWakeAttack(t *testing.T) {
	const closed = `,"network":{"allowPublicTraffic":false}`
	s := newSleeper(t, "/v2/sandboxes", closed, nil)
	for i, w := range ways(s) {
		t.Run(w.name, func(t *testing.T) {
			s := s
			if w.status == http.StatusOK { // each gets a sandbox of its own, for wakes are bounded
				s = newSleeper(t, "/v2/sandboxes", closed, nil)
				w = ways(s)[i]
			}
			got := s.ask(w.method, w.path, w.header, "body")
			if got.status != w.status || w.status == http.StatusOK && !strings.HasPrefix(string(got.body), "body of /") {
				t.Errorf("%d %s", got.status, got.body)
			}
			if woken := s.woken(); woken != (w.status == http.StatusOK) || !woken && s.box.State() != host.StatePaused {
				t.Errorf("woken: %v, it is %s", woken, s.box.State())
			}
		})
	}
}

// TestWakeOpen: a sandbox without tokens is woken by whoever asks for something of it.
func TestWakeOpen(t *testing.T) {
	for _, w := range []struct {
		method, path string
		port         int
		status       int
	}{
		{"POST", "/process.Process/Start", protocol.EnvdPort, 200}, {"GET", "/files?path=x", protocol.EnvdPort, 200},
		{"POST", "/execute", protocol.CodeInterpreterPort, 200}, {"OPTIONS", "/", 3000, 200},
		{"GET", "/health", protocol.EnvdPort, 502}, {"GET", "/health", protocol.CodeInterpreterPort, 502},
		{"GET", "/cubby/activity", protocol.EnvdPort, 404}, {"OPTIONS", "/files", protocol.EnvdPort, 502},
	} {
		s := newSleeper(t, "/sandboxes", "", nil)
		if got := s.ask(w.method, w.path, s.routing(w.port), "body"); got.status != w.status || s.woken() != (w.status == 200) {
			t.Errorf("%s %s at %d: %d %s, woken: %v", w.method, w.path, w.port, got.status, got.body, s.woken())
		}
	}
}

// TestWakePreflight: a browser may send what wakes a sandbox.
func TestWakePreflight(t *testing.T) {
	s := newSleeper(t, "/v2/sandboxes", "", nil)
	h := s.routing(protocol.EnvdPort, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-access-token")
	if got := s.ask("OPTIONS", "/files", h, ""); got.status != http.StatusNoContent || got.header.Get("Access-Control-Allow-Headers") != "x-access-token" || s.woken() {
		t.Errorf("%d %v, woken: %v", got.status, got.header, s.woken())
	}
}

// TestWakeOnce: requests that come together wake a sandbox once, and none of their bodies
// is lost; so do those that come while it is being paused.
func TestWakeOnce(t *testing.T) {
	pausing, saved := make(chan struct{}), make(chan struct{})
	var slow atomic.Bool
	s := newSleeper(t, "/v2/sandboxes", "", func(e *hosttest.Engine) {
		e.Load = func(context.Context, engine.Spec) error { time.Sleep(50 * time.Millisecond); return nil }
		e.Save = func(context.Context, engine.Spec) error {
			if slow.Load() {
				close(pausing)
				<-saved
			}
			return nil
		}
	})
	together := func(n int) *sync.WaitGroup {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				body := strings.Repeat(strconv.Itoa(i), 100_000)
				r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/x", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header = s.routing(3000)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if got, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(got) != body+" of /x" {
					t.Errorf("%d, %d bytes, %v", resp.StatusCode, len(got), err)
				}
			})
		}
		return &all
	}
	together(10).Wait()
	if n := len(s.engine.Machines()) - s.slept; n != 1 {
		t.Errorf("ten requests made %d machines", n)
	}
	if left := time.Until(s.box.EndAt()); left < 4*time.Minute {
		t.Errorf("it has %v", left)
	}

	slow.Store(true)
	s.slept = len(s.engine.Machines())
	paused := make(chan error, 1)
	go func() { paused <- s.box.Pause(context.Background(), host.PauseOptions{}) }()
	<-pausing
	late := together(10)
	time.Sleep(20 * time.Millisecond) // they wait for the pause
	slow.Store(false)
	close(saved)
	late.Wait()
	if err := <-paused; err != nil {
		t.Error(err)
	}
	if n := len(s.engine.Machines()) - s.slept; n != 1 {
		t.Errorf("ten requests during a pause made %d machines", n)
	}
}

// TestWakeBounded: whoever wakes a sandbox again and again is told to wait.
func TestWakeBounded(t *testing.T) {
	s := newSleeper(t, "/v2/sandboxes", "", nil)
	for range 20 {
		got := s.ask("GET", "/", s.routing(3000), "")
		if got.status == http.StatusTooManyRequests {
			if after, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || after < 1 || s.woken() {
				t.Errorf("Retry-After %q, woken: %v", got.header.Get("Retry-After"), s.woken())
			}
			return
		}
		s.sleep()
	}
	t.Error("it was woken twenty times")
}

// TestWakeTunnel: a tunnel to a port wakes the sandbox, and to the guest's own ports only
// a request in it does.
func TestWakeTunnel(t *testing.T) {
	for _, tt := range []struct {
		port  int
		token bool
		woken bool
	}{{3000, false, true}, {protocol.EnvdPort, false, false}, {protocol.EnvdPort, true, true}} {
		s := newSleeper(t, "/v2/sandboxes", "", nil)
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		name := fmt.Sprintf("%d-%s.example.com", tt.port, s.box.ID)
		fmt.Fprintf(c, "CONNECT %[1]s:80 HTTP/1.1\r\nHost: %[1]s:80\r\n\r\n", name)
		br := bufio.NewReader(c)
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("CONNECT: %v %v", resp, err)
		}
		if tt.port == protocol.EnvdPort && s.woken() {
			t.Error("the tunnel alone has woken it")
		}
		token := ""
		if tt.token {
			token = "X-Access-Token: " + s.box.Token + "\r\n"
		}
		fmt.Fprintf(c, "POST /x HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 4\r\n\r\nbody", name, token)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if (string(body) == "body of /x") != tt.woken || s.woken() != tt.woken {
			t.Errorf("%d, token %v: %d %s, woken: %v", tt.port, tt.token, resp.StatusCode, body, s.woken())
		}
	}
}

// TestNoWake: a request to a paused sandbox without auto-resume is answered at once.
func TestNoWake(t *testing.T) {
	s := newSleeper(t, "/v2/sandboxes", `,"autoResume":{"enabled":false}`, nil)
	for _, port := range []int{3000, protocol.EnvdPort, protocol.CodeInterpreterPort} {
		got := s.ask("POST", "/execute", s.routing(port, protocol.HeaderAccessToken, s.box.Token), "body")
		want := `{"sandboxId":"` + s.box.ID + `","message":"The sandbox was not found: it is paused","code":502}` + "\n"
		if got.status != http.StatusBadGateway || string(got.body) != want || s.woken() {
			t.Errorf("%d: %d %s, woken: %v", port, got.status, got.body, s.woken())
		}
	}
}
