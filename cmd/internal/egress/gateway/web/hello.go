package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// Hello is what the gateway has to know of a TLS client hello.
type Hello struct {
	// ServerName is the name that the client asks for, as it was sent; "" if it
	// asks for none. It has only letters, digits, "-", "_" and ".", ends without a
	// dot and has at most 255 bytes. It need not be a valid name otherwise.
	ServerName string
	// ALPN are the protocols that the client offers, the preferred first.
	ALPN []string
	// ECH says that there is an encrypted client hello, or something that looks
	// like one: browsers send such noise to every server (GREASE). If it is real,
	// ServerName is not the name that the server will see.
	ECH bool
}

// ErrNoHello says that the client's first bytes are not those of a TLS client hello.
var ErrNoHello = errors.New("not a TLS client hello")

// HelloError says what is wrong with a client hello: servers could read it in
// different ways, or it is larger than the caller allows.
type HelloError struct{ Reason string }

func (e *HelloError) Error() string { return "TLS client hello: " + e.Reason }

// Of the TLS registries.
const (
	recordHandshake   = 22
	maxRecord         = 1 << 14
	messageHello      = 1
	extServerName     = 0
	extALPN           = 16
	extPSK            = 41
	extECH            = 0xfe0d
	extESNI           = 0xffce // the draft before ECH
	nameTypeHost      = 0
	maxName           = 255
	helloReadAtLeast  = 2048 // bytes that a read has room for
	helloHeaderRecord = 5
	helloHeaderMsg    = 4
)

// ReadHello reads conn up to the end of the client hello that it begins with, and
// at most max bytes of it. The reader returns everything that was read and then
// what follows on conn; it is never nil, so that what is no hello can be used as
// something else. ReadHello returns at the first byte that cannot belong to a hello.
//
// The error is io.EOF if the client has sent nothing, ErrNoHello for what is not
// TLS, a *HelloError for a hello that has to be refused, the context's cause if
// ctx ends first, and otherwise that of conn. conn's read deadline is used, and
// removed at the end.
func ReadHello(ctx context.Context, conn net.Conn, max int) (Hello, io.Reader, error) {
	r := &helloReader{conn: conn, max: max}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		conn.SetReadDeadline(time.Unix(1, 0))
	})
	hello, err := r.hello()
	if !stop() {
		<-fired
		conn.SetReadDeadline(time.Time{})
		err = context.Cause(ctx)
	}
	if err != nil {
		hello = Hello{}
	}
	return hello, &replay{r.seen, conn}, err
}

// replay returns what was read before, and then reads on.
type replay struct {
	seen []byte
	conn net.Conn
}

func (r *replay) Read(p []byte) (int, error) {
	if len(r.seen) == 0 {
		return r.conn.Read(p)
	}
	n := copy(p, r.seen)
	if r.seen = r.seen[n:]; len(r.seen) == 0 {
		r.seen = nil
	}
	return n, nil
}

type helloReader struct {
	conn net.Conn
	max  int
	seen []byte // everything that was read
	used int    // what was taken of it
}

// more makes sure that n bytes are there that were not taken.
func (r *helloReader) more(n int) error {
	if r.used+n > r.max {
		return &HelloError{fmt.Sprintf("more than %d bytes", r.max)}
	}
	for len(r.seen) < r.used+n {
		if cap(r.seen)-len(r.seen) < helloReadAtLeast {
			r.seen = append(make([]byte, 0, 2*cap(r.seen)+helloReadAtLeast), r.seen...)
		}
		got, err := r.conn.Read(r.seen[len(r.seen):cap(r.seen)])
		r.seen = r.seen[:len(r.seen)+got]
		if len(r.seen) >= r.used+n {
			break
		}
		if err != nil {
			if err == io.EOF && len(r.seen) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// record returns the content of the next record. The type and the version are
// judged as soon as they are there: the client of another protocol may wait.
func (r *helloReader) record() ([]byte, error) {
	first := r.used == 0
	wrong := func(reason string) error {
		if first {
			return ErrNoHello
		}
		return &HelloError{reason}
	}
	if err := r.more(1); err != nil {
		return nil, err
	}
	if r.seen[r.used] != recordHandshake {
		return nil, wrong("it is interrupted by another record")
	}
	if err := r.more(2); err != nil {
		return nil, err
	}
	if r.seen[r.used+1] != 3 {
		return nil, wrong("its records have different versions")
	}
	if err := r.more(helloHeaderRecord); err != nil {
		return nil, err
	}
	if r.seen[r.used+2] > 4 {
		return nil, &HelloError{"a record of an unknown version"}
	}
	size := int(r.seen[r.used+3])<<8 | int(r.seen[r.used+4])
	if size == 0 || size > maxRecord {
		return nil, &HelloError{fmt.Sprintf("a record of %d bytes", size)}
	}
	if first {
		if err := r.more(helloHeaderRecord + 1); err != nil {
			return nil, err
		}
		if r.seen[helloHeaderRecord] != messageHello {
			return nil, ErrNoHello
		}
	}
	if err := r.more(helloHeaderRecord + size); err != nil {
		return nil, err
	}
	content := r.seen[r.used+helloHeaderRecord : r.used+helloHeaderRecord+size]
	r.used += helloHeaderRecord + size
	return content, nil
}

func (r *helloReader) hello() (Hello, error) {
	var message []byte
	need := helloHeaderMsg
	for len(message) < need {
		content, err := r.record()
		if err != nil {
			return Hello{}, err
		}
		message = append(message, content...)
		if len(message) >= helloHeaderMsg {
			need = helloHeaderMsg + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
			if need > r.max {
				return Hello{}, &HelloError{fmt.Sprintf("more than %d bytes", r.max)}
			}
		}
	}
	// Nothing may follow before the server has answered.
	if len(message) > need {
		return Hello{}, &HelloError{"its record has more than the hello"}
	}
	return parseHello(message[helloHeaderMsg:])
}

// parseHello reads the body of a client hello (RFC 8446, 4.1.2).
func parseHello(body []byte) (Hello, error) {
	malformed := &HelloError{"malformed"}
	s := cryptobyte.String(body)
	var version uint16
	var random []byte
	var session, suites, compressions cryptobyte.String
	if !s.ReadUint16(&version) || !s.ReadBytes(&random, 32) ||
		!s.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!s.ReadUint16LengthPrefixed(&suites) || len(suites) == 0 || len(suites)%2 != 0 ||
		!s.ReadUint8LengthPrefixed(&compressions) || len(compressions) == 0 {
		return Hello{}, malformed
	}
	if version < 0x0300 || version > 0x0303 {
		return Hello{}, &HelloError{"an unknown version"}
	}
	var hello Hello
	if s.Empty() { // before TLS 1.3 there need be no extensions
		return hello, nil
	}
	var extensions cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return Hello{}, malformed
	}
	seen := map[uint16]bool{}
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return Hello{}, malformed
		}
		if seen[kind] {
			return Hello{}, &HelloError{fmt.Sprintf("extension %d is there twice", kind)}
		}
		seen[kind] = true
		var err error
		switch kind {
		case extServerName:
			hello.ServerName, err = readServerName(data)
		case extALPN:
			hello.ALPN, err = readALPN(data)
		case extECH, extESNI:
			hello.ECH = true
		case extPSK:
			if !extensions.Empty() {
				err = &HelloError{"an extension behind the pre-shared keys"}
			}
		}
		if err != nil {
			return Hello{}, err
		}
	}
	return hello, nil
}

// readServerName reads the extension of RFC 6066, 3. Only names of hosts are
// defined, and only one.
func readServerName(data cryptobyte.String) (string, error) {
	var list, name cryptobyte.String
	var kind uint8
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() ||
		!list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&name) {
		return "", &HelloError{"a malformed server name"}
	}
	if kind != nameTypeHost || !list.Empty() {
		return "", &HelloError{"a server name that is not the name of one host"}
	}
	if len(name) == 0 || len(name) > maxName {
		return "", &HelloError{fmt.Sprintf("a server name of %d bytes", len(name))}
	}
	for _, c := range name {
		if !isNameByte(c) {
			return "", &HelloError{"a server name with bytes that names do not have"}
		}
	}
	if name[len(name)-1] == '.' {
		return "", &HelloError{"a server name that ends with a dot"}
	}
	return string(name), nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// readALPN reads the extension of RFC 7301, 3.1.
func readALPN(data cryptobyte.String) ([]string, error) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return nil, &HelloError{"a malformed list of protocols"}
	}
	var protocols []string
	for !list.Empty() {
		var protocol cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&protocol) || protocol.Empty() {
			return nil, &HelloError{"a malformed list of protocols"}
		}
		protocols = append(protocols, string(protocol))
	}
	return protocols, nil
}
