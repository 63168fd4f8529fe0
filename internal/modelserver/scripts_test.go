//go:build linux

package modelserver

import (
	"context"
	"encoding/json"
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

func (direct) Info() agent.ModelInfo {
	return agent.ModelInfo{Provider: "script", Name: "script", Tools: true}
}

func (d direct) Generate(_ context.Context, r agent.Request, _ func(agent.Delta)) (*agent.Reply, error) {
	c := Conversation{System: r.System}
	for _, m := range r.Messages {
		message := Message{Role: string(m.Role), Text: m.Text()}
		for _, p := range m.Parts {
			if result, ok := p.(agent.ToolResult); ok {
				message.Results = append(message.Results, Result{CallID: result.CallID, Text: agent.Message{Parts: result.Parts}.Text()})
			}
		}
		c.Messages = append(c.Messages, message)
	}
	reply := d.script.reply(c)
	if reply.Refuse != "" {
		return nil, errors.New(reply.Refuse)
	}
	message := agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: d.change.Replace(reply.Text)}}}
	for _, call := range reply.Calls {
		message.Parts = append(message.Parts, agent.ToolCall{ID: "c", Name: call.Name, Arguments: json.RawMessage(call.arguments())})
	}
	return &agent.Reply{Message: message}, nil
}

// The demos' numbers are those of the data: each step expects what the code of
// the step before prints, and the code is run here.
func TestDemos(t *testing.T) {
	table, err := os.ReadFile("../../examples/weather/seattle-weather.csv")
	if err != nil {
		t.Fatal(err)
	}
	executor, err := sandbox.New(t.Context(), sandbox.Config{})
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
		name, script, chart string
		change              *strings.Replacer
		turns               int
	}{
		{"tools", "demo-tools", "", strings.NewReplacer(), 3},
		{"without matplotlib", "demo", "rain-by-year.svg", strings.NewReplacer("import matplotlib\n", without), 5},
		{"with matplotlib", "demo", "rain-by-year.png", strings.NewReplacer(), 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			script, err := Load(test.script)
			if err != nil {
				t.Fatal(err)
			}
			a, err := agent.New(direct{script, test.change}, executor, agent.WithMode(agent.Mode(script.Mode)))
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
			if answer.Turns != test.turns || !strings.Contains(answer.Text, "2014 was the wettest year") {
				t.Errorf("%d turns: %s", answer.Turns, answer.Text)
			}
			var names []string
			for _, f := range answer.Files {
				names = append(names, f.Name)
			}
			if got := strings.Join(names, " "); got != test.chart {
				t.Errorf("files %q, want %q", got, test.chart)
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
