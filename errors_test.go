package cubby_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// transport answers every request with the same.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestErrorsOfOthersStayAsTheyAre lets calls of many goroutines fail with one and
// the same error, which each names after itself.
func TestErrorsOfOthersStayAsTheyAre(t *testing.T) {
	shared := &cubby.Error{Code: cubby.CodeNotFound, Err: errors.New("the line is cut")}
	before := *shared
	c, err := cubby.NewClient(cubby.Config{APIURL: "http://cubby.invalid", Transport: transport(func(*http.Request) (*http.Response, error) {
		return nil, shared
	})})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(context.Context) error{
		"create sandbox":     func(ctx context.Context) error { _, err := c.Create(ctx); return err },
		"connect to sandbox": func(ctx context.Context) error { _, err := c.Connect(ctx, "a"); return err },
		"get sandbox":        func(ctx context.Context) error { _, err := c.Get(ctx, "a"); return err },
	}
	var all sync.WaitGroup
	for range 20 {
		for op, call := range calls {
			all.Go(func() {
				if e, ok := errors.AsType[*cubby.Error](call(t.Context())); !ok || e.Op != op || e == shared {
					t.Errorf("%s: got %v", op, e)
				}
			})
		}
	}
	all.Wait()
	if *shared != before {
		t.Errorf("the transport's error became %+v", shared)
	}
}

// TestConnectOptions: what Connect takes, it sends.
func TestConnectOptions(t *testing.T) {
	var body string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		io.WriteString(w, `{"sandboxID":"isbx1","templateID":"base"}`)
	})
	for _, tt := range []struct {
		opts []cubby.ConnectOption
		want string
	}{
		{nil, `{"timeout":300}`},
		{[]cubby.ConnectOption{cubby.WithTimeout(1500 * time.Millisecond)}, `{"timeout":2}`},
	} {
		if _, err := c.Connect(t.Context(), "isbx1", tt.opts...); err != nil || body != tt.want {
			t.Errorf("sent %s, want %s; %v", body, tt.want, err)
		}
	}
	// The others are for what does not exist yet: the compiler refuses them.
	for _, o := range []cubby.CreateOption{
		cubby.WithTemplate("base"), cubby.WithLimits(cubby.Limits{PIDs: 1}), cubby.WithMetadata(nil), cubby.WithSandboxEnv(nil), cubby.WithWarm("bash"),
	} {
		if _, also := o.(cubby.ConnectOption); also {
			t.Errorf("Connect takes a %T", o)
		}
	}
}

// TestCommandsConnectRefuses: options of a start mean nothing to a command that
// runs, and are not ignored.
func TestCommandsConnectRefuses(t *testing.T) {
	sbx := start(t, &wire{})
	for name, o := range map[string]cubby.CommandOption{
		"WithEnv": cubby.WithEnv(map[string]string{"A": "b"}), "WithTimeout": cubby.WithTimeout(time.Second), "WithCwd": cubby.WithCwd("/"),
		"WithUser": cubby.WithUser("root"), "WithTag": cubby.WithTag("t"), "WithStdin": cubby.WithStdin(strings.NewReader("x")),
		"WithOpenStdin": cubby.WithOpenStdin(),
	} {
		_, err := sbx.Commands().Connect(t.Context(), 7, o)
		if cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), name+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRetryAfter: an error says when the server wants to be asked again.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "0": 0, "-1": 0, "999999999": time.Hour, "Wed, 21 Oct 2026 07:28:00 GMT": 0, "5s": 0,
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"code":429,"message":"full"}`)
		})
		_, err := c.Create(t.Context())
		e, ok := errors.AsType[*cubby.Error](err)
		if !ok || e.Code != cubby.CodeRateLimited || e.RetryAfter != want || e.Message() != "create sandbox: full" {
			t.Errorf("%q: %v after %v, want %v", header, err, e.RetryAfter, want)
		}
	}
}
