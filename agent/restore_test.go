//go:build linux

package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// TestRestore: a session goes on with what was said in an earlier one, and its model
// is told once that the sandbox is another.
func TestRestore(t *testing.T) {
	executor, err := local.NewUnsafe(t.Context(), local.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer executor.Close()
	first := script("It is seven.")
	session := func(m agent.Model) *agent.Session {
		a, err := agent.New(m, executor, agent.WithEnvironment(""), agent.WithRetry(agent.RetryOptions{Attempts: 1}))
		if err != nil {
			t.Fatal(err)
		}
		return a.Session("")
	}
	s := session(first)
	q := agent.Question{Text: "Keep seven.", Images: []agent.Image{{Name: "a.png", MIMEType: "image/png", Data: []byte("x")}}}
	if _, err := s.Ask(t.Context(), q, nil); err != nil {
		t.Fatal(err)
	}
	kept := s.Messages()

	m := script(errors.New("down"), "Yes.", "Again.")
	s = session(m)
	if err := s.Restore(kept[:1]); err == nil {
		t.Error("a conversation without an answer was restored")
	}
	if err := s.Restore(kept); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ask(t.Context(), agent.Question{Text: "Never heard."}, nil); err == nil {
		t.Error("a model that is down answered")
	}
	for _, text := range []string{"Still there?", "And now?"} {
		if _, err := s.Ask(t.Context(), agent.Question{Text: text}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var told []int
	for i, r := range m.requests {
		n, images := 0, 0
		for _, message := range r.Messages {
			n += strings.Count(message.Text(), "new sandbox")
			for _, p := range message.Parts {
				if _, ok := p.(agent.Image); ok {
					images++
				}
			}
		}
		told = append(told, n)
		if r.Messages[0].Text() != "Keep seven.[Image: a.png]" || r.Messages[1].Text() != "It is seven." || images > 0 {
			t.Errorf("request %d: %+v", i, r.Messages)
		}
	}
	if len(told) != 3 || told[0] != 1 || told[1] != 1 || told[2] != 1 {
		t.Errorf("told in the requests: %v", told)
	}
	if last := m.requests[2].Messages[4].Text(); last != "And now?" {
		t.Errorf("the last question is %q", last)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(kept); !errors.Is(err, agent.ErrClosed) {
		t.Error(err)
	}
}
