package egress

import (
	"net/netip"
	"time"
)

// Flow is a connection, or an exchange of datagrams, of a sandbox: it is told once
// when it was decided, and one that was allowed once more when it ended. A question
// about a name that no rule allows is a flow that was refused, to port 53.
type Flow struct {
	Sandbox string    `json:"sandbox"`
	Time    time.Time `json:"time"` // when it was asked for
	Proto   Proto     `json:"proto"`
	// Host is the name that the sandbox asked for, if its address stands for one.
	Host string `json:"host,omitempty"`
	// Addr is what the sandbox's packets were sent to.
	Addr    netip.AddrPort `json:"addr"`
	Allowed bool           `json:"allowed"`
	Rule    string         `json:"rule,omitempty"` // that decided
	// Reason says why it was refused or, of one that ended, what went wrong.
	Reason string `json:"reason,omitempty"`
	// Entry is what an allow list has to name for a flow that was refused, if that is
	// enough.
	Entry    string `json:"entry,omitempty"`
	Sent     int64  `json:"sent"`     // bytes from the sandbox
	Received int64  `json:"received"` // bytes to the sandbox
	// End is when it ended. It is zero in what is told at the decision.
	End time.Time `json:"end,omitzero"`
}
