package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		"0.5":                           500 * time.Millisecond,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:00:00 GMT": 0,
		"-1":                            0,
		"NaN":                           0,
		"soon":                          0,
		"1e300":                         24 * time.Hour,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if got := retryAfter(http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"20"}}, now); got != 20*time.Millisecond {
		t.Errorf("milliseconds: %v", got)
	}
}

// post sends a request and returns how the stream ended, nil at its end, and how
// much data its events held.
func post(t *testing.T, e *Endpoint, h http.HandlerFunc) (err error, size int) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	e.BaseURL = srv.URL
	s, err := e.Post(t.Context(), Client(nil), "x", nil, []byte("{}"))
	if err != nil {
		return err, 0
	}
	defer s.Close()
	for {
		event, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil, size
		}
		if err != nil {
			return err, size
		}
		size += len(event.Data)
	}
}

// through sends a request as the SDKs do and returns the error and the body.
func through(t *testing.T, e *Endpoint, h http.HandlerFunc) (error, string) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	e.BaseURL = srv.URL
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.Middleware(req, Client(nil).Do)
	if err != nil {
		return e.Error(t.Context(), fmt.Errorf("as an SDK wraps it: %w", err)), ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return e.Error(t.Context(), fmt.Errorf("as an SDK wraps it: %w", err)), string(text)
	}
	return nil, string(text)
}

func TestAnswers(t *testing.T) {
	elsewhere := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere = true }))
	defer other.Close()
	for _, test := range []struct {
		name   string
		status int
		body   string
		kind   agent.ModelErrorKind
		says   string
	}{
		{"OpenAI's 401", 401, `{"error":{"message":"Incorrect API key provided: sk-secret.","type":"invalid_request_error","code":"invalid_api_key"}}`, agent.KindUnauthorized, "[secret]"},
		{"Anthropic's 401", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, agent.KindUnauthorized, "THE_KEY"},
		{"no credit", 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, agent.KindUnauthorized, "credit"},
		{"too many", 429, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, agent.KindRateLimited, "slow down"},
		{"an unknown model", 404, `{"error":{"message":"model not found"}}`, agent.KindUnknownModel, "check the model's name"},
		{"too long, OpenAI", 400, `{"error":{"message":"…","code":"context_length_exceeded"}}`, agent.KindContextTooLong, "new session"},
		{"too long, Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 300000 tokens"}}`, agent.KindContextTooLong, "too long"},
		{"FastAPI's", 422, `{"detail":[{"msg":"field required"}]}`, agent.KindInvalidRequest, "field required"},
		{"overloaded", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, agent.KindOverloaded, "Overloaded"},
		{"a proxy's page", 502, `<html><body>Bad gateway</body></html>`, agent.KindOverloaded, "a web page"},
		{"a page with 200", 200, `<html>Sign in</html>`, agent.KindInvalidResponse, "no stream"},
		{"JSON with 200", 200, `{"error":"no such thing"}`, agent.KindInvalidResponse, "no such thing"},
		{"a redirect", 307, ``, agent.KindInvalidResponse, "redirects"},
		{"a stream", 200, "data: {}\n\n", "", ""},
		{"nothing", 200, "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &Endpoint{Provider: "p", KeyVar: "THE_KEY", URLVar: "THE_URL", Secrets: []string{"sk-secret"}}
			answer := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", other.URL)
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}
			err, body := through(t, e, answer)
			if posted, _ := post(t, e, answer); fmt.Sprint(posted) != fmt.Sprint(err) || agent.KindOf(posted) != agent.KindOf(err) {
				t.Errorf("through an SDK it is %v, without one %v", err, posted)
			}
			if agent.KindOf(err) != test.kind {
				t.Fatalf("%v", err)
			}
			if err == nil {
				if body != test.body {
					t.Errorf("the stream is %q", body)
				}
				return
			}
			var m *agent.ModelError
			if text := err.Error(); !errors.As(err, &m) || !strings.Contains(text, test.says) || strings.Contains(text, "sk-secret") {
				t.Errorf("it says %q", text)
			}
			if m.Status != test.status || test.status >= 400 && m.RetryAfter != 3*time.Second {
				t.Errorf("%+v", m)
			}
		})
	}
	if elsewhere {
		t.Error("a redirect was followed")
	}
}

func TestBrokenOff(t *testing.T) {
	e := &Endpoint{Provider: "p"}
	err, body := through(t, e, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if agent.KindOf(err) != agent.KindStreamCut || body == "" {
		t.Errorf("%q, %v", body, err)
	}
	if err, size := post(t, e, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}); agent.KindOf(err) != agent.KindStreamCut || size == 0 {
		t.Errorf("%d bytes, %v", size, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Error(ctx, errors.New("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("a context's end: %v", err)
	}
	if err := (&Endpoint{Provider: "p", BaseURL: "no URL"}).Check("m"); agent.KindOf(err) != agent.KindUnreachable {
		t.Errorf("a base URL that is none: %v", err)
	}
	if err := e.Check(""); err == nil {
		t.Error("no model")
	}
}

// An event that does not end is refused at its bound, not held whole: neither as
// one line nor as many. So is a stream that does not end.
func TestEndless(t *testing.T) {
	for name, test := range map[string]struct {
		piece, says string
		most        int
	}{
		"one line":                {strings.Repeat("x", 1<<16), "event of more than 4 MiB", maxEvent},
		"lines, none of it empty": {"data: x\r\n", "event of more than 4 MiB", maxEvent},
		"events":                  {"data: " + strings.Repeat("x", 1<<16) + "\n\n", "larger than any", maxReplyBody},
	} {
		t.Run(name, func(t *testing.T) {
			err, size := post(t, &Endpoint{Provider: "p"}, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "data: {}\r\n\r\ndata: ")
				for range maxReplyBody/len(test.piece) + 1 {
					if _, err := io.WriteString(w, test.piece); err != nil {
						return
					}
				}
			})
			if agent.KindOf(err) != agent.KindInvalidResponse || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
			if size > test.most {
				t.Errorf("%d bytes were read", size)
			}
		})
	}
	long := strings.Repeat("x", maxEvent-10)
	if err, size := post(t, &Endpoint{Provider: "p"}, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "data: "+long+"\n\n")
		}
	}); err != nil || size != 3*len(long) {
		t.Errorf("events below the bound: %d bytes, %v", size, err)
	}
}

func TestPicture(t *testing.T) {
	var good bytes.Buffer
	if err := png.Encode(&good, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	var wide bytes.Buffer
	if err := png.Encode(&wide, image.NewGray(image.Rect(0, 0, 9000, 1))); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		data  []byte
		taken bool
		note  string
	}{
		{"fine", good.Bytes(), true, ""},
		{"a model that takes none", good.Bytes(), false, "takes no pictures"},
		{"damaged", good.Bytes()[:20], true, "damaged"},
		{"too wide", wide.Bytes(), true, "9000 by 1"},
		{"too large", append(good.Bytes(), make([]byte, 5<<20)...), true, "larger"},
		{"SVG", []byte("<svg/>"), true, "no PNG"},
	} {
		// The type that code claims does not count.
		mime, data, note := Picture(agent.Image{Name: test.name, MIMEType: "image/gif", Data: test.data}, test.taken)
		if (note == "") != (test.note == "") || !strings.Contains(note, test.note) || note == "" && (mime != "image/png" || data == "") {
			t.Errorf("%s: %q %q", test.name, mime, note)
		}
	}
}

func FuzzParseError(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"x","type":"y","code":7}}`))
	f.Add([]byte(`{"error":"x"}`))
	f.Add([]byte(`<html>`))
	f.Add([]byte(`{"detail":[{"msg":"m"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := &Endpoint{Provider: "p"}
		out := e.made(kindOf(400, parseError(data)), 400, parseError(data))
		if out.Kind == "" || len(out.Message) > 1100 {
			t.Errorf("%q: %+v", data, out)
		}
	})
}

// TestSchemaKeepsItsDigits has a bound that no float has.
func TestSchemaKeepsItsDigits(t *testing.T) {
	schema, err := Schema([]byte(`{"properties":{"id":{"type":"integer","maximum":9223372036854775807,"minimum":1.0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(schema)
	if want := `{"properties":{"id":{"maximum":9223372036854775807,"minimum":1.0,"type":"integer"}},"type":"object"}`; string(got) != want || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}
