//go:build linux

package commands

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

func envelope(flags byte, size int, text string) string {
	var head [5]byte
	head[0] = flags
	binary.BigEndian.PutUint32(head[1:], uint32(size))
	return string(head[:]) + text
}

func message(text string) string { return envelope(0, len(text), text) }

// TestProcessWire is what E2B's clients send and get, byte for byte.
func TestProcessWire(t *testing.T) {
	b := newBox(t)
	post := func(procedure, contentType, body string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "POST", b.envd.URL+procedure, strings.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Connect-Protocol-Version", "1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const stream, unary = "application/connect+json", "application/json"
	start := envdconnect.ProcessStartProcedure
	for _, test := range []struct {
		name, procedure, contentType, body string
		status                             int
		want                               []string
	}{
		{"output and end", start, stream, message(`{"process":{"cmd":"/bin/sh","args":["-c","echo hi; exit 7"],"envs":{}},"stdin":false}`), 200, []string{
			`{"event":{"start":{"pid":`, `{"event":{"data":{"stdout":"aGkK"}}}`,
			`{"event":{"end":{"exitCode":7,"exited":true,"status":"exit status 7","error":"exit status 7"}}}`, "\x02\x00\x00\x00\x02{}"}},
		{"an error of a stream", start, stream, message(`{"process":{"cmd":"true","cwd":"/nonexistent"}}`), 200, []string{`"code":"invalid_argument"`, `cwd '/nonexistent' does not exist`}},
		{"an error of a call", envdconnect.ProcessSendSignalProcedure, unary, `{"process":{"pid":999999999},"signal":"SIGNAL_SIGKILL"}`, 404, []string{`"code":"not_found"`, `process with pid 999999999 not found`}},
		{"an empty list", envdconnect.ProcessListProcedure, unary, `{}`, 200, []string{`{}`}},
		{"unknown fields are ignored", envdconnect.ProcessListProcedure, unary, `{"future":1}`, 200, []string{`{}`}},
		{"no JSON", envdconnect.ProcessListProcedure, unary, `{`, 400, []string{`"code":"invalid_argument"`}},
		{"no JSON in a stream", start, stream, message(`{`), 200, []string{`"code":"invalid_argument"`}},
		{"half an envelope", start, stream, "\x00\x00", 200, []string{`"error"`}},
		{"an envelope that promises more", start, stream, envelope(0, 100, "{}"), 200, []string{`"error"`}},
		{"an envelope that promises everything", start, stream, envelope(0, 1<<32-1, "{}"), 200, []string{`"error"`}},
		{"no envelope", start, stream, "", 200, []string{`"error"`}},
		{"two envelopes", start, stream, message(`{}`) + message(`{}`), 200, []string{`"error"`}},
		{"the wrong type", start, "text/plain", "x", 415, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, text := post(test.procedure, test.contentType, test.body)
			if status != test.status {
				t.Errorf("status %d: %s", status, text)
			}
			for _, want := range test.want {
				if !strings.Contains(strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(want, " ", "")) {
					t.Errorf("%q is not in %q", want, text)
				}
			}
		})
	}
}

// FuzzProcessEnvelopes sends bytes to the calls that take streams and start
// nothing: each is answered, and nothing of it is left.
func FuzzProcessEnvelopes(f *testing.F) {
	for _, seed := range []string{
		"", "\x00", message(`{}`), message(`{"process":{"pid":7}}`), message(`{"start":{"process":{"tag":"x"}}}`),
		message(`{"start":{"process":{"pid":7}}}`) + message(`{"data":{"input":{"stdin":"eA=="}}}`) + message(`{"keepalive":{}}`),
		envelope(1, 4, "gzip"), envelope(2, 2, "{}"), envelope(0, 1<<32-1, "{"), message("\xff\xfe"), message(`{"data":{"input":{"pty":"\u0000"}}}`),
	} {
		f.Add(true, false, []byte(seed))
		f.Add(false, true, []byte(seed))
	}
	g := New(context.Background(), settings.New(settings.Config{}), &reaper.Children{}, restored.New())
	_, h := g.Handler()
	f.Fuzz(func(t *testing.T, follow, binary bool, body []byte) {
		procedure, contentType := envdconnect.ProcessStreamInputProcedure, "application/connect+json"
		if follow {
			procedure = envdconnect.ProcessConnectProcedure
		}
		if binary {
			contentType = "application/connect+proto"
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "POST", procedure, bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if ctx.Err() != nil {
			t.Error("no answer")
		}
		// The last envelope is the end of the stream.
		out := w.Body.Bytes()
		for last := byte(0); last&2 == 0; {
			if len(out) < 5 || len(out) < 5+int(uint32(out[1])<<24|uint32(out[2])<<16|uint32(out[3])<<8|uint32(out[4])) {
				t.Fatalf("status %d, a stream without an end: %q", w.Code, w.Body)
			}
			last = out[0]
			out = out[5+int(uint32(out[1])<<24|uint32(out[2])<<16|uint32(out[3])<<8|uint32(out[4])):]
		}
	})
}
