// Package escape tells text from the control sequences of ECMA-48: colours, cursor
// moves, titles, queries, what else a terminal obeys. What is done with either is the
// caller's decision.
package escape

// Parser reads characters one at a time and holds a state of fixed size between
// them, so that a text can be cut anywhere. The zero value is ready; a new value
// forgets what has begun. It is not safe for concurrent use.
//
// It follows the VT510 and xterm: ESC begins anew within anything, CAN and SUB end
// anything, and the characters of the C1 set are obeyed in UTF-8. Where a sequence or
// string is not as it should be, Parser counts less to it than they do, because what a
// terminal swallows is lost to a reader: any control character ends an incomplete
// sequence, a string ends at the end of its line, and BEL ends each kind of string, not
// only OSC. Characters of the C1 set other than ST end no string.
type Parser struct {
	state      state
	length     int // of the parameters that were read, of which the first are kept
	parameters [maxParameters]byte
}

// maxParameters bounds what is kept of a control sequence, in bytes. One that sets
// two colours of 24 bits and some attributes has 42.
const maxParameters = 62

type state uint8

const (
	ground        state = iota
	escaped             // after ESC
	intermediate        // after ESC and bytes such as "(" that choose what its last one means
	inSequence          // after CSI
	inString            // in a string for the terminal
	stringEscaped       // after ESC in one
)

// Kind is what a character is or completes.
type Kind uint8

const (
	// None: the character belongs to a sequence that is not complete or was broken
	// off, or to a string for the terminal.
	None Kind = iota
	// Text is a character to be shown, or U+FFFD.
	Text
	// Control is a control character outside of sequences: of the C0 or C1 set, or DEL.
	Control
	// Escape is the last character of a sequence of ESC and one byte, with or
	// without intermediate ones: a reset, a character set.
	Escape
	// ControlSequence is the last character of what CSI begins: it names the
	// function, and [Parser.Parameters] are its parameters.
	ControlSequence
	// String is the end of a string for the terminal: OSC, DCS, APC, PM or SOS.
	String
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f

	dcs = 0x90
	sos = 0x98
	csi = 0x9b
	st  = 0x9c
	osc = 0x9d
	pm  = 0x9e
	apc = 0x9f
)

// Next reads the next character of the text.
func (p *Parser) Next(r rune) Kind {
	if p.state == ground && r >= 0x20 && r < del {
		return Text // most characters: this much is compiled into the caller
	}
	return p.next(r)
}

func (p *Parser) next(r rune) Kind {
	if r == esc && p.state != inString {
		p.state = escaped
		return None
	}
	switch p.state {
	case ground:
		return p.ground(r)
	case escaped:
		if c1, ok := introducer(r); ok {
			return p.ground(c1)
		}
		return p.escape(r)
	case intermediate:
		return p.escape(r)
	case inSequence:
		return p.sequence(r)
	case inString:
		return p.inside(r)
	}
	if r == '\\' { // with the ESC before it, ST
		p.state = ground
		return String
	}
	// The string is broken off, and ESC begins something else.
	p.state = escaped
	return p.next(r)
}

// Parameters returns the parameters and intermediate bytes of the control sequence
// that Next has just completed. They are valid until Next is called again. ok is
// false where there were more than are kept.
func (p *Parser) Parameters() (b []byte, ok bool) {
	return p.parameters[:min(p.length, maxParameters)], p.length <= maxParameters
}

func (p *Parser) ground(r rune) Kind {
	p.state = ground
	switch {
	case r == csi:
		p.state, p.length = inSequence, 0
		return None
	case r == dcs || r == sos || r == osc || r == pm || r == apc:
		p.state = inString
		return None
	case r < 0x20 || r >= del && r < 0xa0:
		return Control
	}
	return Text
}

func (p *Parser) escape(r rune) Kind {
	switch {
	case r >= 0x20 && r <= 0x2f:
		p.state = intermediate
		return None
	case r >= 0x30 && r < del:
		p.state = ground
		return Escape
	}
	return p.ground(r)
}

func (p *Parser) sequence(r rune) Kind {
	switch {
	case r >= 0x20 && r <= 0x3f:
		if p.length < maxParameters {
			p.parameters[p.length] = byte(r)
		}
		p.length = min(p.length, maxParameters) + 1
		return None
	case r >= 0x40 && r < del:
		p.state = ground
		return ControlSequence
	}
	return p.ground(r)
}

func (p *Parser) inside(r rune) Kind {
	switch r {
	case esc:
		p.state = stringEscaped
	case bel, st:
		p.state = ground
		return String
	case can, sub:
		p.state = ground
	case '\n':
		return p.ground(r)
	}
	return None
}

// introducer returns the character of the C1 set that ESC and r stand for, where a
// sequence or string begins with it.
func introducer(r rune) (c1 rune, ok bool) {
	switch c1 = r + 0x40; c1 {
	case csi, dcs, sos, osc, pm, apc:
		return c1, true
	}
	return 0, false
}
