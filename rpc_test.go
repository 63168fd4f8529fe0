package cubby

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"
)

// FuzzEnvelopes: whatever a sandbox sends, a reader of envelopes returns messages
// that were there, takes no more memory than came, and comes to an end.
func FuzzEnvelopes(f *testing.F) {
	f.Add(append(envelope([]byte(`{"event":{}}`)), 2, 0, 0, 0, 2, '{', '}'))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 9, '{'})
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, r := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in))} {
			e := envelopes{in: r}
			for rest := in; ; {
				message, last, err := e.next()
				if err != nil {
					if !errors.Is(err, errCutCall) && CodeOf(err) != CodeInternal {
						t.Errorf("an error of no kind: %v", err)
					}
					break
				}
				if want := rest[envelopeHead:][:len(message)]; !bytes.Equal(message, want) || last != (rest[0] == flagEnd) {
					t.Fatalf("read %q, last %v, of %q", message, last, rest)
				}
				rest = rest[envelopeHead+len(message):]
				if last {
					_ = parseEnd(message, CodeRateLimited)
				}
			}
			if cap(e.buf) > 4*len(in)+128<<10 {
				t.Errorf("%d bytes of memory for %d that came", cap(e.buf), len(in))
			}
		}
	})
}

// FuzzCommandEvents: hostile messages of a command never get more kept than was
// allowed, and callbacks hear whole characters.
func FuzzCommandEvents(f *testing.F) {
	f.Add([]byte("h\xc3"), []byte("\xa9llo"))
	f.Add([]byte("\xf0\x9f"), []byte("\x98"))
	f.Add([]byte("0000000\xc3"), []byte("\xa9")) // the bound is in the middle
	f.Add([]byte("\x80\x80\x80\x80"), []byte("\xff\xc3"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		const limit = 8
		var heard strings.Builder
		valid := utf8.Valid(append(bytes.Clone(a), b...))
		k := newSink(limit, nil, func(s string) {
			if valid && !utf8.ValidString(s) {
				t.Errorf("a callback heard half a character: %q", s)
			}
			heard.WriteString(s)
		})
		_ = k.take(a)
		_ = k.take(b)
		kept := k.flush()
		if len(kept) > limit || heard.String() != kept || !strings.HasPrefix(string(a)+string(b), kept) {
			t.Errorf("of %q and %q, %q was kept and %q heard", a, b, kept, heard.String())
		}
		if k.truncated != (len(kept) < len(a)+len(b)) {
			t.Errorf("truncated is %v", k.truncated)
		}
	})
}

// TestSignature has E2B's own example.
func TestSignature(t *testing.T) {
	const want = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := signature("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", ""); got != want {
		t.Errorf("got %s", got)
	}
}

// TestSilence: a stream that says nothing for long is asked about. It goes on
// while its sandbox runs, and ends when that is gone or paused: the connection
// may have died without a sign.
func TestSilence(t *testing.T) {
	for _, tt := range []struct {
		name, info string
		status     int
		code       Code
	}{
		{"gone", `{"code":404,"message":"it ended"}`, http.StatusNotFound, CodeSandboxGone},
		{"paused", `{"state":"paused"}`, http.StatusOK, CodePaused},
		{"running", `{"state":"running"}`, http.StatusOK, 0},
		{"nobody knows", `?`, http.StatusInternalServerError, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := make(chan struct{}, 1000)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("E2b-Sandbox-Id") == "" {
					w.WriteHeader(tt.status)
					io.WriteString(w, tt.info)
					asked <- struct{}{}
					return
				}
				w.Header().Set("Content-Type", typeConnectJSON)
				w.Write(envelope([]byte(`{"event":{"start":{"pid":7}}}`)))
				w.(http.Flusher).Flush()
				for range 3 { // asking once must not be the end of asking
					select {
					case <-asked:
					case <-r.Context().Done():
						return
					}
				}
				if tt.code != 0 {
					<-r.Context().Done()
					return
				}
				w.Write(envelope([]byte(`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`)))
				w.Write([]byte{flagEnd, 0, 0, 0, 2, '{', '}'})
			}))
			defer srv.Close()
			c, err := NewClient(Config{APIURL: srv.URL})
			if err != nil {
				t.Fatal(err)
			}
			c.quiet = 20 * time.Millisecond
			sbx := &Sandbox{client: c, id: "isbx1"}
			if _, err := sbx.Commands().Run(t.Context(), "true"); CodeOf(err) != tt.code {
				t.Errorf("got %v (%v), want %v", err, CodeOf(err), tt.code)
			}
		})
	}
}

// BenchmarkCommandOutput measures the way out of a sandbox: a chunk is base64
// in JSON in an envelope.
func BenchmarkCommandOutput(b *testing.B) {
	chunk := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32<<10))
	frame := envelope(fmt.Appendf(nil, `{"event":{"data":{"stdout":"%s"}}}`, chunk))
	b.SetBytes(32 << 10)
	e := envelopes{in: &repeated{frame, 0}}
	for b.Loop() {
		message, _, err := e.next()
		if err != nil {
			b.Fatal(err)
		}
		var m wireEvent
		if err := decode(message, &m); err != nil {
			b.Fatal(err)
		}
	}
}

// repeated is the same bytes again and again.
type repeated struct {
	b  []byte
	at int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.b[r.at:])
	r.at = (r.at + n) % len(r.b)
	return n, nil
}
