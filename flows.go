package cubby

import (
	"context"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Flow is a connection, an exchange of datagrams, or a question about a name, of code in
// a sandbox: it is told when it was decided and, if it was allowed, again when it ended.
type Flow struct {
	At    time.Time // when it was asked for
	Proto string    // "tcp" or "udp"
	// Host is the name that was asked for, if the address stands for one, and Addr is
	// where the code sent to, ADDRESS:PORT.
	Host, Addr string
	Allowed    bool
	// Rule is the entry of [Network] that decided; empty if none did. Reason says why it
	// was refused or, of one that ended, what went wrong; Allow is the entry of
	// Network.Allow that opens it, empty where the server's owner alone can, or nobody.
	Rule, Reason, Allow string
	// Sent and Received are bytes from the sandbox and to it, and EndedAt is when it
	// ended. All three are zero in what is told at the decision.
	Sent, Received int64
	EndedAt        time.Time
}

// Flows returns what the server decided of what code in the sandbox wanted to connect to,
// and how it ended, oldest first: the newest thousand. A flood of flows is told in part. It
// fails with [CodeSandboxGone] when the sandbox has ended, and with [CodeUnimplemented] on
// servers that are no Cubby.
func (s *Sandbox) Flows(ctx context.Context) ([]Flow, error) {
	flows, err := s.client.Flows(ctx, s.id)
	return flows, recoded(err, CodeNotFound, CodeSandboxGone)
}

// Flows is [Sandbox.Flows] of the sandbox of that id, which must not have ended. It fails
// with [CodeNotFound] when the server knows none.
//
// Names and reasons come out of a sandbox, or of a server: who prints them on a terminal
// takes out what that would obey.
func (c *Client) Flows(ctx context.Context, id string) ([]Flow, error) {
	const op = "get network flows"
	if err := checkID(id); err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	var answer protocol.Flows
	if err := c.control(ctx, http.MethodGet, "/sandboxes/"+id+"/network", nil, nil, &answer); err != nil {
		return nil, fail(op, CodeUnavailable, err)
	}
	out := make([]Flow, 0, len(answer.Flows))
	for _, f := range answer.Flows {
		out = append(out, Flow{
			At: f.Time, Proto: f.Proto, Host: f.Host, Addr: f.Addr, Allowed: f.Allowed, Rule: f.Rule, Reason: f.Reason, Allow: f.Entry,
			Sent: f.Sent, Received: f.Received, EndedAt: f.End,
		})
	}
	return out, nil
}
