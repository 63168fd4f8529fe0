package cubby_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// inputs is a code interpreter that takes standard input: the execution ends when
// end says so.
func inputs(t *testing.T, got *strings.Builder, end chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/execute/stdin":
			w.WriteHeader(http.StatusNoContent)
		case strings.HasPrefix(r.URL.Path, "/execute/stdin/"):
			if _, err := io.Copy(got, r.Body); err != nil {
				t.Error(err)
			}
			if r.URL.Query().Has("end") {
				close(end)
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			select {
			case <-end:
			case <-r.Context().Done():
			}
			io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
		}
	}
}

func TestRunCodeWithInput(t *testing.T) {
	var got strings.Builder // the calls come one after the other
	sbx := start(t, &wire{execute: inputs(t, &got, make(chan struct{}))})
	want := strings.Repeat("all of it\n", 200_000)
	if _, err := sbx.RunCode(t.Context(), "x", cubby.WithStdin(strings.NewReader(want)), cubby.WithTimeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("%d bytes of %d came", got.Len(), len(want))
	}
}

// TestInputOutlivesTheCode: code that ends does not wait for a reader that does
// not, and the reader is left alone from then on.
func TestInputOutlivesTheCode(t *testing.T) {
	end := make(chan struct{})
	sbx := start(t, &wire{execute: inputs(t, &strings.Builder{}, end)})
	r, w := io.Pipe()
	defer w.Close()
	close(end)
	if _, err := sbx.RunCode(t.Context(), "x", cubby.WithStdin(r)); err != nil {
		t.Fatal(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestInputThatFails(t *testing.T) {
	sbx := start(t, &wire{execute: inputs(t, &strings.Builder{}, make(chan struct{}))})
	broken := errors.New("the disk is on fire")
	_, err := sbx.RunCode(t.Context(), "x", cubby.WithStdin(failing{broken}))
	if !errors.Is(err, broken) || cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("got %v", err)
	}
}

// TestInputThatNobodyKnows: a server that would ignore input and arguments is not
// asked to run anything.
func TestInputThatNobodyKnows(t *testing.T) {
	for name, opt := range map[string]cubby.RunOption{
		"input": cubby.WithStdin(strings.NewReader("x")), "no input": cubby.WithStdin(nil), "arguments": cubby.WithProgram("x.py", "a"),
	} {
		t.Run(name, func(t *testing.T) {
			var ran atomic.Bool
			sbx := start(t, &wire{execute: func(w http.ResponseWriter, r *http.Request) {
				ran.Store(ran.Load() || r.URL.Path == "/execute")
				w.WriteHeader(http.StatusNotFound)
			}})
			_, err := sbx.RunCode(t.Context(), "x", opt)
			if cubby.CodeOf(err) != cubby.CodeUnimplemented || ran.Load() {
				t.Errorf("%v, and something ran: %v", err, ran.Load())
			}
		})
	}
}
