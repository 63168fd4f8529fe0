package dns

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	// packetSize is the size of UDP messages that we say we take. It passes nearly every
	// path in one piece.
	packetSize = 1232
)

// The bits of a message's third and fourth byte.
const (
	bitResponse  = 1 << 15
	bitsOpcode   = 15 << 11
	bitTruncated = 1 << 9
	bitRecursion = 1 << 8
	bitUnchecked = 1 << 4 // CD
)

var (
	errForm    = errors.New("the message is malformed")
	errOpcode  = errors.New("the message is not a query")
	errVersion = errors.New("the message has an unknown version of EDNS")
)

// A question is what a sandbox asks, as far as it could be read.
type question struct {
	id    uint16
	flags uint16
	asked []dns.Question // one, or none if it could not be read
	edns  bool
	size  int // of the largest packet that the client takes
}

// readQuestion reads a message that may have one question and EDNS, and nothing else. An
// error is one of the three above, and the question then has what a reply needs.
func readQuestion(b []byte) (question, error) {
	if len(b) < headerSize {
		return question{}, errForm
	}
	q := question{id: binary.BigEndian.Uint16(b), flags: binary.BigEndian.Uint16(b[2:]), size: dns.MinMsgSize}
	if q.flags&bitsOpcode != 0 {
		return q, errOpcode
	}
	count := func(at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }
	if q.flags&bitTruncated != 0 || count(4) != 1 || count(6) != 0 || count(8) != 0 || count(10) > 1 {
		return q, errForm
	}
	asked, end, err := readAsked(b)
	if err != nil {
		return q, err
	}
	q.asked = []dns.Question{asked}
	if count(10) == 1 {
		rr, after, err := dns.UnpackRR(b, end)
		if err != nil {
			return q, errForm
		}
		opt, ok := rr.(*dns.OPT)
		if !ok || opt.Hdr.Name != "." {
			return q, errForm
		}
		end = after
		q.edns, q.size = true, max(q.size, int(opt.UDPSize()))
		if opt.Version() != 0 {
			return q, errVersion
		}
	}
	if end != len(b) {
		return q, errForm
	}
	return q, nil
}

// readAsked reads a message's first question, and returns where it ends. Its name must be
// written out: a pointer has nothing before it to point to.
func readAsked(b []byte) (dns.Question, int, error) {
	if len(b) < headerSize {
		return dns.Question{}, 0, errForm
	}
	name, end, err := dns.UnpackDomainName(b, headerSize)
	if err != nil || len(b) < end+4 {
		return dns.Question{}, 0, errForm
	}
	var again [256]byte
	n, err := dns.PackDomainName(name, again[:], 0, nil, false)
	if err != nil || !bytes.Equal(again[:n], b[headerSize:end]) {
		return dns.Question{}, 0, errForm
	}
	return dns.Question{
		Name:   name,
		Qtype:  binary.BigEndian.Uint16(b[end:]),
		Qclass: binary.BigEndian.Uint16(b[end+2:]),
	}, end + 4, nil
}

// An answer is what a question is answered with. extended is an extended error code (RFC
// 8914), or 0 for none.
type answer struct {
	rcode    int
	records  []dns.RR
	extended uint16
}

// reply returns the message that answers q with at most limit bytes, and nil if even the
// question has no room in that. Records that do not fit are left out, which the reply says.
func (q question) reply(a answer, limit int) []byte {
	if limit < MaxMessage {
		limit = min(limit, q.size)
	}
	m := &dns.Msg{
		MsgHdr: dns.MsgHdr{
			Id:                 q.id,
			Response:           true,
			Opcode:             int(q.flags & bitsOpcode >> 11),
			RecursionDesired:   q.flags&bitRecursion != 0,
			RecursionAvailable: true,
			CheckingDisabled:   q.flags&bitUnchecked != 0,
			Rcode:              a.rcode,
		},
		Question: q.asked,
		Answer:   a.records,
	}
	if q.edns {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(packetSize)
		if a.extended != 0 {
			opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: a.extended})
		}
		m.Extra = []dns.RR{opt}
	}
	m.Truncate(limit)
	b, err := m.Pack()
	if err != nil {
		// A record that cannot be written was read from a resolver; the rest of the
		// message is ours.
		m.Answer, m.Rcode = nil, dns.RcodeServerFailure
		b, err = m.Pack()
	}
	if err == nil && len(b) > limit {
		m.Answer, m.Extra, m.Truncated = nil, nil, true
		b, err = m.Pack()
	}
	if err != nil || len(b) > limit {
		return nil
	}
	return b
}
