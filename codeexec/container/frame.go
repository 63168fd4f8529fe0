package container

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The agent's protocol; agent.py says what the kinds mean.
const (
	agentVersion = 1
	headerSize   = 9
	maxFrame     = 1 << 20   // bytes of a frame to the agent
	maxReply     = 64 << 10  // bytes of a frame from it
	window       = 256 << 10 // bytes under way in each direction of a program
	chunk        = 32 << 10
)

type frame struct {
	kind    byte
	program uint32
	payload []byte
}

// errProtocol is what an agent that lies is told apart by.
var errProtocol = errors.New("the agent in the container does not keep to its protocol")

// readFrame reads what the agent sent, which whoever runs in the container may
// have written in its place. The payload is valid until the next call.
func readFrame(r io.Reader, buf []byte) (frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(h[:])
	if size > maxReply || int(size) > len(buf) {
		return frame{}, fmt.Errorf("%w: a frame of %d bytes", errProtocol, size)
	}
	f := frame{kind: h[4], program: binary.BigEndian.Uint32(h[5:]), payload: buf[:size]}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, noEOF(err)
	}
	return f, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends a frame to b.
func appendFrame(b []byte, kind byte, program uint32, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, program)
	return append(b, payload...)
}

// streams reads the one stream of an attached container: stdout is what Read
// returns, stderr goes to log. Docker puts a header before each piece.
type streams struct {
	r    io.Reader
	log  io.Writer
	left uint32 // of the piece that is being read
	kind byte
}

func (s *streams) Read(p []byte) (int, error) {
	for {
		for s.left == 0 {
			var h [8]byte
			if _, err := io.ReadFull(s.r, h[:]); err != nil {
				return 0, err
			}
			s.kind, s.left = h[0], binary.BigEndian.Uint32(h[4:])
			if s.kind > 3 || h[1]|h[2]|h[3] != 0 {
				return 0, errors.New("the daemon sent something else than a container's output")
			}
		}
		if s.kind <= 1 {
			n, err := s.r.Read(p[:min(len(p), int(min(s.left, 1<<30)))])
			s.left -= uint32(n)
			return n, err
		}
		n, err := io.CopyN(s.log, s.r, int64(s.left))
		s.left -= uint32(n)
		if err != nil {
			return 0, noEOF(err)
		}
	}
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxTail = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-maxTail):]...)
	t.b = t.b[max(0, len(t.b)-maxTail):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// words are what the agent itself says on stderr: it has hardly anything to say.
// One that goes on and on is not the agent any more.
type words struct {
	tail
	said int // by one goroutine
}

const maxWords = 1 << 20

func (w *words) Write(p []byte) (int, error) {
	if w.said += len(p); w.said > maxWords {
		return 0, fmt.Errorf("%w: more than %d bytes on stderr", errProtocol, maxWords)
	}
	return w.tail.Write(p)
}
