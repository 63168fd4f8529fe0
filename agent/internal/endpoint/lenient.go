package endpoint

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Text is a string of a reply. Servers that only resemble the providers' send other
// JSON in some places, such as an object for a call's arguments: it is taken as it
// is written, and null as nothing.
type Text string

// UnmarshalJSON never fails.
func (t *Text) UnmarshalJSON(raw []byte) error {
	*t = Text(text(raw))
	return nil
}

// Number is a whole number of a reply, which may also come as a fraction or in a
// string. What is none is 0.
type Number int64

// UnmarshalJSON never fails.
func (n *Number) UnmarshalJSON(raw []byte) error {
	s := strings.TrimSpace(text(raw))
	*n = 0
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		*n = Number(i)
	} else if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) {
		*n = Number(min(max(f, -1<<53), 1<<53))
	}
	return nil
}

// Tokens is a count of tokens that an endpoint claims, bounded, so that sums of
// such counts do not overflow.
func (n Number) Tokens() int { return int(min(max(n, 0), 1<<30)) }

// Present reports whether a field is there and not null.
func Present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
