//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/channel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestGuestOnItsChannel talks to a whole guest as a host does, and as a second
// host does after a restore: the kernels are as they were.
func TestGuestOnItsChannel(t *testing.T) {
	hostEnd, guestEnd, err := channel.Pair()
	if err != nil {
		t.Fatal(err)
	}
	again, err := unix.FcntlInt(hostEnd.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	cfg := settings.Config{
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), UserName: "user", Home: t.TempDir(), KernelDir: t.TempDir(),
		Interpreters: map[string]string{settings.Python: "/usr/bin/python3"}, Env: []string{"PATH=/usr/bin:/bin"},
	}
	go func() { done <- Run(ctx, cfg, guestEnd) }()

	execute := func(h *channel.Host, code string) string {
		t.Helper()
		tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(address)
			n, _ := strconv.Atoi(port)
			return h.Dial(ctx, n)
		}}
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr, Timeout: 20 * time.Second}
		resp, err := c.Get("http://guest:49983/health")
		if err != nil || resp.StatusCode != 204 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		// A host says it again after a restore, and its kernel is the one that was.
		body, _ := json.Marshal(protocol.InitRequest{HostToken: guesttest.HostToken, Warm: []string{settings.Python}})
		req, _ := http.NewRequest("POST", "http://guest:49983/init", bytes.NewReader(body))
		req.Header.Set(protocol.HeaderHostToken, guesttest.HostToken)
		if resp, err = c.Do(req); err != nil || resp.StatusCode != 204 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		body, _ = json.Marshal(protocol.ExecuteRequest{Code: code})
		resp, err = c.Post("http://guest:49999/execute", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	h, err := channel.NewHost(hostEnd)
	if err != nil {
		t.Fatal(err)
	}
	if out := execute(h, "x = 6*7\nprint(x)"); !strings.Contains(out, `"42\n"`) {
		t.Fatal(out)
	}
	if _, err := h.Dial(ctx, 1); !errors.Is(err, channel.ErrRefused) {
		t.Fatal(err)
	}
	_ = h.Close()
	if h, err = channel.NewHost(os.NewFile(uintptr(again), "restored")); err != nil {
		t.Fatal(err)
	}
	sealed := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.Dial(ctx, protocol.CodeInterpreterPort)
	}, DisableKeepAlives: true}}
	resp, err := sealed.Get("http://guest/contexts")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("before the second host has greeted: %v, %v", resp, err)
	}
	resp.Body.Close()
	if out := execute(h, "print(x + 1)"); !strings.Contains(out, `"43\n"`) {
		t.Fatal(out)
	}
	_ = h.Close()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
