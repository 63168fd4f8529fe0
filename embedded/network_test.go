//go:build linux

package embedded_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestNetworkChanges: rules of a sandbox that runs are replaced; what they no longer
// allow is cut when the call returns, also in its middle.
func TestNetworkChanges(t *testing.T) {
	testenv.CheckLeaks(t)
	ctx := bounded(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			io.WriteString(w, "begun\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		io.WriteString(w, "hello")
	}))
	defer srv.Close()
	_, text, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := embedded.Open(ctx, embedded.Config{Python: "/usr/bin/python3", HostPorts: []int{port}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	sbx, err := c.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://host.cubby.internal:%d", port)
	fetch := func(path string) string {
		t.Helper()
		ex := run(t, sbx, fmt.Sprintf("import urllib.request as r\ntry: print(r.urlopen(%q, timeout=20).read().decode())\nexcept OSError as e: print('refused')", url+path))
		return strings.TrimSpace(ex.Stdout)
	}
	allowed := cubby.Network{Allow: []string{"host.cubby.internal:" + text}}
	for _, step := range []struct {
		network cubby.Network
		want    string
	}{{allowed, "hello"}, {cubby.Network{}, "refused"}, {cubby.Network{Open: true}, "hello"}} {
		if err := sbx.SetNetwork(ctx, step.network); err != nil {
			t.Fatal(err)
		}
		if got := fetch("/"); got != step.want {
			t.Errorf("%+v: %q, want %q", step.network, got, step.want)
		}
	}

	begun, over := make(chan struct{}), make(chan string, 1)
	go func() {
		ex, err := sbx.RunCode(ctx, fmt.Sprintf("import urllib.request as r\nanswer = r.urlopen(%q)\nprint(answer.readline().decode(), flush=True)\n"+
			"try: print('ended', len(answer.read()))\nexcept OSError as e: print('cut')", url+"/stream"),
			cubby.OnStdout(func(text string) {
				if strings.Contains(text, "begun") {
					close(begun)
				}
			}))
		if err != nil {
			over <- err.Error()
			return
		}
		over <- ex.Stdout
	}()
	<-begun
	if err := sbx.SetNetwork(ctx, cubby.Network{}); err != nil {
		t.Fatal(err)
	}
	if got := <-over; !strings.Contains(got, "cut") {
		t.Errorf("the connection was not cut: %q", got)
	}
	if err := sbx.SetNetwork(ctx, cubby.Network{Allow: []string{"@no-such-registry"}}); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("got %v", err)
	}
}

// TestReachThatMeansNothing: what cannot be meant is told before anything runs.
func TestReachThatMeansNothing(t *testing.T) {
	testenv.CheckLeaks(t)
	for _, cfg := range []embedded.Config{
		{Reach: []string{"example.com"}}, {Reach: []string{"224.0.0.0/4"}}, {Reach: []string{""}}, {HostPorts: []int{0}}, {HostPorts: []int{65536}},
	} {
		c, err := embedded.Open(bounded(t), cfg)
		if err == nil {
			c.Close()
		}
		if cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
