//go:build linux

package agent_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/openai"
)

// A stream that is one endless line is refused early, with words of ours, and
// does not cost the memory of what was sent.
func TestEndlessLine(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: ")
		for piece := strings.Repeat("x", 1<<20); ; {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	for name, m := range map[string]agent.Model{
		"openai":    openai.New(openai.Config{Model: "m", APIKey: "k", BaseURL: srv.URL}),
		"anthropic": anthropic.New(anthropic.Config{Model: "m", APIKey: "k", BaseURL: srv.URL}),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := m.Generate(t.Context(), agent.Request{Messages: []agent.Message{agent.UserText("a")}}, nil)
			runtime.ReadMemStats(&after)
			if agent.KindOf(err) != agent.KindInvalidResponse || !strings.Contains(err.Error(), "event of more than 4 MiB") {
				t.Errorf("%v", err)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 64 {
				t.Errorf("%d MiB were allocated", used)
			}
		})
	}
}
