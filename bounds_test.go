package cubby_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// silent is a server that takes requests and does not answer, or begins to.
type silent struct{ begins bool }

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/known") { // one sandbox can be found
		return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(`{"sandboxID":"known","cubbyLimits":{"memoryMB":512}}`))}, nil
	}
	if s.begins {
		return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(stalled{r.Context()})}, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// stalled is a body that does not come.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// TestSilentServer: a server that does not answer is waited for as long as the
// caller's context says, else for a time that is the call's.
func TestSilentServer(t *testing.T) {
	for _, test := range []struct {
		name string
		call func(ctx context.Context, c *cubby.Client, known *cubby.Sandbox) error
		want time.Duration
	}{
		{"list", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error {
			for _, err := range c.List(ctx, cubby.ListOptions{}) {
				return err
			}
			return nil
		}, 30 * time.Second},
		{"get", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error {
			_, err := c.Get(ctx, "a")
			return err
		}, 30 * time.Second},
		{"kill", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error { return c.Kill(ctx, "a") }, 30 * time.Second},
		{"logs", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error {
			_, err := c.Logs(ctx, "a", time.Time{})
			return err
		}, 30 * time.Second},
		{"set timeout", func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) error {
			return s.SetTimeout(ctx, time.Hour)
		}, 30 * time.Second},
		{"create", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error {
			_, err := c.Create(ctx)
			return err
		}, 2 * time.Minute},
		{"connect", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error {
			_, err := c.Connect(ctx, "a")
			return err
		}, 10 * time.Minute},
		{"pause", func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) error { return s.Pause(ctx) }, 10 * time.Minute},
		{"snapshot", func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) error {
			_, err := s.Snapshot(ctx)
			return err
		}, 10 * time.Minute},
		{"fork", func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) error {
			_, err := s.Fork(ctx, 2)
			return err
		}, 10 * time.Minute},
		{"rollback", func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) error { return s.Rollback(ctx, "x") }, 10 * time.Minute},
		{"snapshots", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error {
			for _, err := range c.Snapshots(ctx, cubby.SnapshotListOptions{}) {
				return err
			}
			return nil
		}, 30 * time.Second},
		{"delete snapshot", func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) error { return c.DeleteSnapshot(ctx, "x") }, 30 * time.Second},
	} {
		for _, begins := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, err := cubby.NewClient(cubby.Config{APIURL: "http://silent.example", APIKey: "e2b_k", Transport: silent{begins}})
				if err != nil {
					t.Fatal(err)
				}
				known, err := c.Get(t.Context(), "known")
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err = test.call(t.Context(), c, known)
				if took := time.Since(start); took != test.want || cubby.CodeOf(err) != cubby.CodeUnavailable ||
					!strings.Contains(err.Error(), "the server has not answered within "+test.want.String()) {
					t.Errorf("%s, begins %v: %v after %v", test.name, begins, err, took)
				}
				for _, own := range []time.Duration{time.Second, time.Hour} {
					ctx, cancel := context.WithTimeout(t.Context(), own)
					start = time.Now()
					err = test.call(ctx, c, known)
					cancel()
					if took := time.Since(start); took != own || cubby.CodeOf(err) != cubby.CodeTimeout {
						t.Errorf("%s, begins %v, with %v: %v after %v", test.name, begins, own, err, took)
					}
				}
			})
		}
	}
}
