//go:build linux

package modelserver

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		log.Fatal(err)
	}
	os.Setenv("CUBBY_PYTHON", "/usr/bin/python3")
	os.Exit(m.Run())
}

// direct is a script as a model, without the wire.
type direct struct {
	script *Script
	change *strings.Replacer // of what it says
}

func (direct) Info() agent.ModelInfo { return agent.ModelInfo{Provider: "script", Name: "script"} }

func (d direct) Generate(_ context.Context, r agent.Request, _ func(agent.Delta)) (*agent.Reply, error) {
	c := Conversation{System: r.System}
	for _, m := range r.Messages {
		c.Messages = append(c.Messages, Message{Role: string(m.Role), Text: m.Text()})
	}
	reply := d.script.reply(c)
	if reply.Refuse != "" {
		return nil, errors.New(reply.Refuse)
	}
	return &agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: d.change.Replace(reply.Text)}}}}, nil
}

// The demo's numbers are those of the data: each step expects what the code of
// the step before prints, and the code is run here.
func TestDemo(t *testing.T) {
	script, err := Load("demo")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../../examples/weather/seattle-weather.csv")
	if err != nil {
		t.Fatal(err)
	}
	executor, err := sandbox.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := executor.Close(); err != nil {
			t.Error(err)
		}
	})
	without := "raise ModuleNotFoundError(\"No module named 'matplotlib'\")\nimport matplotlib\n"
	for _, test := range []struct {
		name, chart string
		change      *strings.Replacer
		turns       int
	}{
		{"without matplotlib", "rain-by-year.svg", strings.NewReplacer("import matplotlib\n", without), 5},
		{"with matplotlib", "rain-by-year.png", strings.NewReplacer(), 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := agent.New(direct{script, test.change}, executor)
			if err != nil {
				t.Fatal(err)
			}
			session := a.Session("")
			defer session.Close()
			answer, err := session.Ask(t.Context(), agent.Question{Text: script.Question,
				Files: []codeexec.File{{Name: script.Files[0], Content: table}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.turns == 4 && answer.Turns == 5 {
				t.Skip("Python has no matplotlib here")
			}
			if answer.Turns != test.turns || !strings.Contains(answer.Text, "2014 was the wettest year") || len(answer.Files) != 1 || answer.Files[0].Name != test.chart {
				t.Errorf("%d turns, %d files: %s", answer.Turns, len(answer.Files), answer.Text)
			}
		})
	}
}

func TestEmbeddedScripts(t *testing.T) {
	names := Scripts()
	if len(names) == 0 {
		t.Fatal("there are none")
	}
	for _, name := range names {
		script, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if script.About == "" {
			t.Errorf("%s: it does not say what it shows", name)
		}
		source, err := embedded.ReadFile("scripts/" + name + ".yaml")
		if err != nil || !strings.HasPrefix(string(source), "# A script written by us. Not a recording of any model.\n") {
			t.Errorf("%s: it does not say that it is a script (%v)", name, err)
		}
	}
}
