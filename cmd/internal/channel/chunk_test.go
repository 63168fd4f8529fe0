//go:build linux

package channel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// chunks is what a guest sends of data that it cut as given.
func chunks(data ...string) []byte {
	var b []byte
	for _, d := range data {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(d))), d...)
	}
	return b
}

// FuzzChunks: a guest may answer anything. What its reader gets is a beginning
// of what was in order, and an end only if there was one.
func FuzzChunks(f *testing.F) {
	f.Add(chunks("hello", "world", ""))
	f.Add(chunks("hello"))
	f.Add(chunks("", "more"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		want, ended := []byte(nil), false
		for rest := body; len(rest) >= 4; {
			n := binary.BigEndian.Uint32(rest)
			if ended = n == 0; ended || n > maxChunk || int(n) > len(rest)-4 {
				break
			}
			want, rest = append(want, rest[4:4+n]...), rest[4+n:]
		}
		c := &conn{rx: newPipe(pipeSize), tx: newPipe(pipeSize)}
		go unchunk(c, io.NopCloser(bytes.NewReader(body)))
		got, err := io.ReadAll(c)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
		if ended != (err == nil) || err != nil && !errors.Is(err, ErrReset) {
			t.Fatalf("ended %v: %v", ended, err)
		}
	})
}
