package egress

import (
	"errors"
	"strings"

	"golang.org/x/net/idna"
)

const (
	maxName    = 253  // octets, RFC 1035 2.3.4, without the dot at the end
	maxLabel   = 63   // octets, the same
	maxWritten = 1024 // bytes of a name before it is encoded
)

// CanonicalName is the one form of a host name in which names are compared: lower
// case, without the dot at the end, international names encoded (IDNA, UTS 46).
// What is no host name is refused, and what some programs would read as an
// address: a name whose last label is a number, decimal or hexadecimal.
//
// It is for what people write. A name that came over a wire is given to WireName.
func CanonicalName(s string) (string, error) {
	if len(s) > maxWritten {
		return "", errors.New("the name is too long")
	}
	if !isASCII(s) {
		// The mapping may make separators and digits of other characters: what
		// comes out is checked like any other name.
		encoded, err := idna.Lookup.ToASCII(s)
		if err != nil {
			return "", errors.New("the name cannot be encoded for DNS")
		}
		s = encoded
	}
	return WireName(s)
}

// WireName is CanonicalName for names as DNS, TLS and HTTP carry them: it refuses
// what is not ASCII, which others on the way could read differently.
func WireName(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	switch {
	case s == "":
		return "", errors.New("the name is empty")
	case len(s) > maxName:
		return "", errors.New("the name is longer than 253 octets")
	}
	name := s
	for i := range len(s) {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			name = lower(s)
			break
		}
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
		last = label
	}
	if isNumber(last) {
		return "", errors.New("the name ends in a number: it could be read as an address")
	}
	return name, nil
}

// lower is for ASCII; strings.ToLower would also replace bytes that are no UTF-8.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}

// checkLabel takes letters, digits, hyphens and the underscore, which names of
// services and some hosts have. Encoded labels must be what encoding them again
// gives, so that a label has one form.
func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("the name has an empty label")
	case len(label) > maxLabel:
		return errors.New("the name has a label longer than 63 octets")
	case label[0] == '-' || label[len(label)-1] == '-':
		return errors.New("a label of the name begins or ends with a hyphen")
	}
	for i := range len(label) {
		switch c := label[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return errors.New("the name has a character that host names cannot have")
		}
	}
	if strings.HasPrefix(label, "xn--") {
		decoded, err := idna.Lookup.ToUnicode(label)
		if err == nil {
			decoded, err = idna.Lookup.ToASCII(decoded)
		}
		if err != nil || decoded != label {
			return errors.New("the name has an encoded label (xn--) that encodes nothing")
		}
	}
	return nil
}

// isNumber says whether a URL whose host ends in this label has an address for
// its host (WHATWG URL, "ends in a number"), as inet_aton(3) reads it, too.
func isNumber(label string) bool {
	digits := label
	hex := strings.HasPrefix(label, "0x")
	if hex {
		digits = label[2:]
	}
	for i := range len(digits) {
		switch c := digits[i]; {
		case '0' <= c && c <= '9', hex && 'a' <= c && c <= 'f':
		default:
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
