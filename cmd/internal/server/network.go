package server

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// setNetwork replaces a sandbox's rules for its way out, all of them.
func (s *Server) setNetwork(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.SandboxNetwork
	if !s.decode(w, r, &body, false) {
		return
	}
	err := box.SetNetwork(r.Context(), host.NetworkRequest{AllowInternetAccess: body.AllowInternetAccess, Network: &body.Network})
	if s.changed(w, r, box, "the sandbox's network could not be changed", err) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// flows tells what a sandbox has connected to, or wanted to; with ?last=N, what began in
// the last N milliseconds.
func (s *Server) flows(w http.ResponseWriter, r *http.Request, team string) {
	id, ok := sandboxID(r.PathValue("id"))
	if !ok {
		writeError(w, fault.InvalidArgument, "Invalid sandbox ID", "")
		return
	}
	var since time.Time
	if text := r.URL.Query().Get("last"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			writeError(w, fault.InvalidArgument, "last is a number of milliseconds", "")
			return
		}
		since = time.Now().Add(-time.Duration(ms) * time.Millisecond)
	}
	flows, err := s.host.Flows(r.Context(), team, id)
	if err != nil {
		writeGone(w, id, err)
		return
	}
	flows = slices.DeleteFunc(flows, func(f egress.Flow) bool { return f.Time.Before(since) })
	answer := protocol.Flows{Flows: make([]protocol.Flow, 0, len(flows))}
	for _, f := range flows {
		answer.Flows = append(answer.Flows, protocol.Flow{
			Time: f.Time, Proto: f.Proto.String(), Host: f.Host, Addr: f.Addr.String(), Allowed: f.Allowed, Rule: f.Rule,
			Reason: f.Reason, Entry: f.Entry,
			Sent: f.Sent, Received: f.Received, End: f.End,
		})
	}
	writeJSON(w, http.StatusOK, answer)
}

// shown is a sandbox's network as its team may read it: without the password of the
// proxy, and without the values of headers, which are keys more often than not.
func shown(n *protocol.Network) *protocol.Network {
	if n == nil {
		return nil
	}
	c := *n
	if n.EgressProxy != nil {
		c.EgressProxy = &protocol.EgressProxy{Address: n.EgressProxy.Address, Username: n.EgressProxy.Username}
	}
	c.Rules = make(map[string][]protocol.NetworkRule, len(n.Rules))
	for name, rules := range n.Rules {
		for _, rule := range rules {
			hidden := protocol.NetworkRule{}
			if rule.Transform != nil {
				hidden.Transform = &protocol.Transform{Headers: map[string]string{}}
				for header := range rule.Transform.Headers {
					hidden.Transform.Headers[header] = "***"
				}
			}
			c.Rules[name] = append(c.Rules[name], hidden)
		}
	}
	return &c
}
