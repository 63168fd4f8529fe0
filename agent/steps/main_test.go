//go:build linux

package steps_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// shared is the sandbox of all tests here: each step has a state of its own in it.
var shared codeexec.CodeExecutor

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	err := testenv.SetBinary()
	if err == nil {
		err = os.Setenv("CUBBY_PYTHON", "/usr/bin/python3")
	}
	var own *e2b.CodeExecutor
	if err == nil {
		own, err = sandbox.New(context.Background(), sandbox.Config{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer own.Close()
	shared = own
	return m.Run()
}

// scripted is a model that gives one reply after the other.
type scripted struct {
	mu      sync.Mutex
	replies []string
	asked   []string
	heat    []*float64 // the temperatures of the requests
	stop    agent.StopReason
}

func model(replies ...string) *scripted { return &scripted{replies: replies} }

func (*scripted) Info() agent.ModelInfo { return agent.ModelInfo{Provider: "script", Name: "script"} }

func (m *scripted) Generate(ctx context.Context, req agent.Request, _ func(agent.Delta)) (*agent.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, req.Messages[len(req.Messages)-1].Text())
	m.heat = append(m.heat, req.Temperature)
	if len(m.replies) == 0 {
		return nil, errors.New("the script is over")
	}
	text := m.replies[0]
	m.replies = m.replies[1:]
	return &agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: text}}},
		Stop: m.stop}, ctx.Err()
}

func python(lines ...string) codeexec.CodeBlock {
	return codeexec.CodeBlock{Language: codeexec.Python, Code: strings.Join(lines, "\n")}
}

func block(lines ...string) string { return "```python\n" + strings.Join(lines, "\n") + "\n```\n" }
