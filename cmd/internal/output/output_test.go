package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// broken is a writer whose writes fail.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

// TestStream: the first failure is told once and kept; the status says so unless
// the command has one of its own.
func TestStream(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	pipe := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
	for _, test := range []struct {
		name   string
		w      io.Writer
		told   string
		status map[int]int // by the command's own
	}{
		{"written", io.Discard, "", map[int]int{0: 0, 1: 1}},
		{"full", broken{full}, "cubby: standard output: no space left on device: the rest of it is lost\n", map[int]int{0: 120, 1: 1}},
		{"another error", broken{io.ErrShortWrite}, "cubby: standard output: short write: the rest of it is lost\n", map[int]int{0: 120, 3: 3}},
		{"a reader that has gone", broken{pipe}, "", map[int]int{0: 141, 1: 141}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var told strings.Builder
			calls := 0
			s := New("standard output", test.w)
			s.OnLoss(Tell(&told, "cubby"))
			s.OnLoss(func(error) { calls++ })
			fails := test.w != io.Discard
			for range 3 {
				if _, err := fmt.Fprintln(s, "text"); (err != nil) != fails || !errors.Is(err, s.Failure()) {
					t.Errorf("a write: %v, and the failure %v", err, s.Failure())
				}
			}
			if told.String() != test.told || (calls == 1) != fails {
				t.Errorf("told %q in %d calls", told.String(), calls)
			}
			for code, want := range test.status {
				if got := Status(code, New("another", io.Discard), s); got != want {
					t.Errorf("status %d instead of %d, want %d", got, code, want)
				}
			}
		})
	}
}
