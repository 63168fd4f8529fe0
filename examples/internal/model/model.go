// Package model chooses the model of an example: a real one where there is a key,
// else a script that plays one.
package model

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/openai"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// Model is a model, with what it needs. The caller closes it.
type Model struct {
	agent.Model
	server *modelserver.Server // of a script
}

// Open returns OpenAI's model if OPENAI_API_KEY is set (at OPENAI_BASE_URL),
// Anthropic's if ANTHROPIC_API_KEY is, else the script: the name of one of
// modelserver's, or a file. MODEL names another model than the usual one. It says
// on out which it is.
func Open(out io.Writer, script string) (*Model, error) {
	var m agent.Model
	switch name := os.Getenv("MODEL"); {
	case os.Getenv("OPENAI_API_KEY") != "":
		m = openai.New(openai.Config{
			Model: cmp.Or(name, "gpt-5"), APIKey: os.Getenv("OPENAI_API_KEY"), BaseURL: os.Getenv("OPENAI_BASE_URL"),
		})
	case os.Getenv("ANTHROPIC_API_KEY") != "":
		m = anthropic.New(anthropic.Config{
			Model: cmp.Or(name, "claude-sonnet-4-5"), APIKey: os.Getenv("ANTHROPIC_API_KEY"), BaseURL: os.Getenv("ANTHROPIC_BASE_URL"),
		})
	default:
		return Scripted(out, script)
	}
	info := m.Info()
	fmt.Fprintf(out, "model: %s of %s\n\n", info.Name, info.Provider)
	return &Model{Model: m}, nil
}

// Real reports whether Open returns a real model.
func Real() bool { return os.Getenv("OPENAI_API_KEY") != "" || os.Getenv("ANTHROPIC_API_KEY") != "" }

// Scripted returns a model that says what a script tells it to say, over HTTP as
// a real one. It needs no key and no network.
func Scripted(out io.Writer, script string) (*Model, error) {
	s, err := modelserver.Load(script)
	if err != nil {
		return nil, err
	}
	server, err := modelserver.Start(modelserver.Config{Script: s})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "scripted model: %s\nIt says what we wrote; the code that it says really runs. With OPENAI_API_KEY or ANTHROPIC_API_KEY set a real one answers.\n\n", script)
	return &Model{openai.New(openai.Config{BaseURL: server.OpenAIURL(), APIKey: "none", Model: "scripted"}), server}, nil
}

// Close ends the script's server, if there is one.
func (m *Model) Close() error {
	if m.server == nil {
		return nil
	}
	return m.server.Close()
}
