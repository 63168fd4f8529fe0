package host

import (
	"bytes"
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
// other values.
func (m *machine) greet(ctx context.Context) error {
	s := m.s
	offline, err := s.offline()
	if err != nil {
		return err
	}
	body, err := json.Marshal(protocol.InitRequest{
		HostToken: s.hostToken, AccessToken: s.Token, EnvVars: s.Env, DefaultUser: protocol.DefaultUser, DefaultWorkdir: protocol.DefaultHome,
		Timestamp: time.Now(), SandboxID: s.ID, TemplateID: s.TemplateID, Limits: s.Limits, Warm: s.Warm, Offline: offline,
	})
	if err != nil {
		return err
	}
	header, err := m.tell(ctx, "/init", body)
	// A guest of another build may refuse what it does not understand.
	if got := header.Get(protocol.HeaderVersion); header != nil && got != guestversion.Build() {
		return &fault.Error{Code: fault.Incompatible,
			Err: fmt.Errorf("the guest is of another build: %.40q, the server is %s: build both with `make build`", got, guestversion.Build())}
	}
	return err
}

// tell posts one of the host's own requests to the guest's envd. The header is that
// of any answer, also of a refusal.
func (m *machine) tell(ctx context.Context, path string, body []byte) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(protocol.HeaderHostToken, m.s.hostToken)
	resp, err := m.guest().RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return resp.Header, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return resp.Header, nil
}
