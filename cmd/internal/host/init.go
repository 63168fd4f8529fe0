package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// guestTimeout bounds each of the host's own requests to a guest.
const guestTimeout = 20 * time.Second

// greet checks the guest's version and tells it all that belongs to the sandbox
// and not to its machine: who it is, its tokens, variables and limits, and the
// languages whose kernels start at once. It can be repeated, with the same or with
// other values. The guest of a machine that was another's before asks for the host token
// of that.
func (m *machine) greet(ctx context.Context, from origin) error {
	s := m.s
	offline, err := s.offline()
	if err != nil {
		return err
	}
	body, err := json.Marshal(protocol.InitRequest{
		HostToken: s.host.hostToken(m.guestOf), AccessToken: s.Token, EnvVars: s.Env,
		DefaultUser: protocol.DefaultUser, DefaultWorkdir: protocol.DefaultHome,
		Timestamp: time.Now(), SandboxID: s.ID, TemplateID: s.TemplateID, Limits: s.Limits, Warm: s.Warm, Offline: offline,
		Restored: from.restored,
	})
	if err != nil {
		return err
	}
	header, _, err := m.request(ctx, cmp.Or(from.guest, m.guestOf), http.MethodPost, "/init", body)
	// A guest of another build may refuse what it does not understand.
	if got := header.Get(protocol.HeaderVersion); header != nil && !guestversion.Fits(got) {
		return &fault.Error{Code: fault.Incompatible,
			Err: fmt.Errorf("the guest is of another build: %.40q, the server is %s: build both with `make build`", got, guestversion.Build())}
	}
	return err
}

// tell posts one of the host's own requests to the guest's envd. The header is that
// of any answer, also of a refusal.
func (m *machine) tell(ctx context.Context, path string, body []byte) (http.Header, error) {
	header, _, err := m.request(ctx, m.guestOf, http.MethodPost, path, body)
	return header, err
}

// maxGuestAnswer bounds what a guest answers to the host's own requests, in bytes.
const maxGuestAnswer = 64 << 10

// ask gets what the guest's envd answers to the host alone.
func (m *machine) ask(ctx context.Context, path string) ([]byte, error) {
	_, answer, err := m.request(ctx, m.guestOf, http.MethodGet, path, nil)
	return answer, err
}

// request sends one of the host's own requests with the host token that the guest knows.
func (m *machine) request(ctx context.Context, guest identity, method, path string, body []byte) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://guest"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(protocol.HeaderHostToken, m.s.host.hostToken(guest))
	resp, err := m.guest().RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return resp.Header, nil, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxGuestAnswer))
	return resp.Header, answer, err
}
