//go:build linux

package channel

import "sync"

// Most connections wait most of the time, and hundreds of them may: what waits
// holds a small buffer, and what flows borrows a large one.
const (
	smallBuffer = 4 << 10
	largeBuffer = 64 << 10
)

var large = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// lend returns an empty buffer for n bytes or more.
func lend(n int) []byte {
	switch {
	case n <= smallBuffer:
		return make([]byte, 0, smallBuffer)
	case n <= largeBuffer:
		return large.Get().(*[largeBuffer]byte)[:0]
	}
	return make([]byte, 0, 2*n)
}

// recycle takes a buffer back whose content is of no use any more. It returns
// what the caller may go on with: the buffer itself if it is small, else nil.
func recycle(b []byte) []byte {
	if cap(b) == largeBuffer {
		large.Put((*[largeBuffer]byte)(b[:largeBuffer]))
		return nil
	}
	return b[:0]
}

// reader is the buffer of something that is read until it ends: large while
// there is much to read.
type reader struct{ small, large []byte }

func newReader() reader { return reader{small: make([]byte, smallBuffer)} }

// buf is what to read into next.
func (r *reader) buf() []byte {
	if r.large != nil {
		return r.large
	}
	return r.small
}

// filled says that the last read filled all of the buffer or not.
func (r *reader) filled(all bool) {
	switch {
	case all && r.large == nil:
		r.large = lend(largeBuffer)[:largeBuffer]
	case !all && r.large != nil:
		r.close()
	}
}

func (r *reader) close() {
	if r.large != nil {
		recycle(r.large)
		r.large = nil
	}
}
