//go:build linux

package channel

import (
	"encoding/binary"
	"errors"
)

// guard follows the HTTP/2 that comes from a guest (RFC 9113, 4.1 and 6.5) for
// the one thing that Go's client would grant at the host's expense: a guest that
// asks for large frames makes it hold up to 512 KiB for each connection.
type guard struct {
	head    [9]byte // of the frame that is read, as far as it is there
	n       int     // bytes of head
	left    int     // bytes of its payload to come
	setting [6]byte // of a SETTINGS frame, as far as it is there
	k       int     // bytes of setting
}

const (
	frameSettings       = 0x4
	settingMaxFrameSize = 0x5
)

var errLargeFrames = errors.New("channel: the guest asks for larger frames than any of ours does")

// pass looks at bytes that come next. After an error the session is over.
func (g *guard) pass(b []byte) error {
	for len(b) > 0 {
		if g.n < len(g.head) {
			m := copy(g.head[g.n:], b)
			g.n, b = g.n+m, b[m:]
			if g.n < len(g.head) {
				return nil
			}
			g.left, g.k = int(g.head[0])<<16|int(g.head[1])<<8|int(g.head[2]), 0
		}
		m := min(g.left, len(b))
		if g.head[3] == frameSettings {
			if err := g.settings(b[:m]); err != nil {
				return err
			}
		}
		if g.left, b = g.left-m, b[m:]; g.left == 0 {
			g.n = 0
		}
	}
	return nil
}

func (g *guard) settings(b []byte) error {
	for len(b) > 0 {
		m := copy(g.setting[g.k:], b)
		if g.k, b = g.k+m, b[m:]; g.k < len(g.setting) {
			return nil
		}
		g.k = 0
		if binary.BigEndian.Uint16(g.setting[:]) == settingMaxFrameSize && binary.BigEndian.Uint32(g.setting[2:]) > maxUpload {
			return errLargeFrames
		}
	}
	return nil
}
