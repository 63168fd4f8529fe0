package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestAccessLog: a line for each request, which holds no secret.
func TestAccessLog(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "12345")
	})})
	box := tn.create()
	r := tn.to(box, 3000, "POST", "/tea%0Apot?signature=SECRET1", strings.NewReader("SECRET2"))
	r.Header.Set(protocol.HeaderAccessToken, "SECRET3")
	r.Header.Set(protocol.HeaderAPIKey, "SECRET4")
	r.Header.Set("Cookie", "SECRET5")
	tn.do(r)
	tn.Close() // lines are written when requests have ended
	var line string
	for l := range strings.Lines(tn.log.String()) {
		if strings.Contains(l, "status=418") {
			line = l
		}
	}
	for _, want := range []string{"method=POST", `path="/tea\npot"`, "status=418", "bytes=5", " ms=", "sandbox_id=" + box.ID, "port=3000", "request="} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %q", want, line)
		}
	}
	if strings.Contains(tn.log.String(), "SECRET") || strings.Contains(tn.log.String(), box.Token) {
		t.Errorf("a secret is in the log:\n%s", tn.log)
	}
}

// TestPanic: a bug in a handler is the server's business, and the client gets
// E2B's JSON without a stack trace.
func TestPanic(t *testing.T) {
	tn := newTown(t, Config{}, nil)
	late := false
	tn.Config.Handler = tn.server.logged(func(w http.ResponseWriter, _ *http.Request) {
		if late {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
		panic("a bug")
	})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", tn.URL, nil)
	got := tn.do(r)
	if got.status != 500 || !strings.Contains(string(got.body), `"code":500`) || strings.Contains(string(got.body), "bug") ||
		strings.Contains(string(got.body), "goroutine") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if log := tn.log.String(); !strings.Contains(log, "a bug") || !strings.Contains(log, "accesslog_test.go") {
		t.Errorf("the log does not say where:\n%s", log)
	}
	late = true
	if got := tn.do(r); got.err == nil {
		t.Error("half an answer looked whole")
	}
}
