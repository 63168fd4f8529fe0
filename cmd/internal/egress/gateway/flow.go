// Package gateway is the way out of sandboxes: it takes the IP packets that come out
// of their network cards, decides by each sandbox's [egress.Policy] what may go where,
// and does it with sockets of its own. Nothing that a sandbox sends reaches the
// network as it was sent.
//
// A [Gateway] serves all sandboxes of a server from one process. Each has a stack of
// its own, which is built when its first packet comes, and its own share of
// connections, memory and work ([Budgets]): what one of them floods slows itself.
package gateway

import (
	"cmp"
)

// Budgets bound what one sandbox takes of the gateway, and what all take together. Zero is the
// default.
type Budgets struct {
	// Flows is how many may be open at a time: 1,024. A connection beyond that is not
	// answered, so the sandbox's kernel tries again a second later.
	Flows int
	// NewFlows is how many may begin in a second, on average: 500. As many as begin in
	// two seconds may begin at once.
	NewFlows int
	// Buffers bounds the bytes that connections' big buffers take: 64 MB. A connection
	// that finds none left has small ones.
	Buffers int64
	// Memory bounds the bytes that the flows of all sandboxes take: 640 MB. One alone
	// gets half of it.
	Memory int64
	// Ports is how many connections all sandboxes may make to one server (an address and
	// its port) in a minute, each of which takes a port of this machine for that long:
	// 14,116, half of those that Linux has. One alone gets half of it.
	Ports int
	// Rate bounds the bytes that pass in a second, in each direction. The default is
	// no bound.
	Rate int64
	// Questions is how many names may be asked for at a time: 64.
	Questions int
}

func (b Budgets) withDefaults() Budgets {
	b.Flows = cmp.Or(b.Flows, 1024)
	b.NewFlows = cmp.Or(b.NewFlows, 500)
	b.Buffers = cmp.Or(b.Buffers, 64<<20)
	b.Memory = cmp.Or(b.Memory, 640<<20)
	b.Ports = cmp.Or(b.Ports, 14116)
	b.Questions = cmp.Or(b.Questions, 64)
	return b
}

// Stats are a sandbox's counts since it was attached.
type Stats struct {
	// Malformed are packets that are no IPv4 packet of the sandbox's own address for
	// another host: also fragments, packets with options, and those to many.
	Malformed uint64 `json:"malformed"`
	// Unsupported are packets of another protocol than TCP and UDP.
	Unsupported uint64 `json:"unsupported"`
	// Limited are connections, datagrams and questions beyond the sandbox's budgets.
	Limited uint64 `json:"limited"`
	// Untold are flows that were not told, for there were too many in a second.
	Untold uint64 `json:"untold"`
	// Flows are those that are open.
	Flows int `json:"flows"`
}
