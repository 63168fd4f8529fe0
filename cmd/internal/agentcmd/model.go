package agentcmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/openai"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/fromenv"
)

// Models where none is named.
const (
	defaultOpenAI    = "gpt-5"
	defaultAnthropic = "claude-sonnet-4-5"
)

const modelHelp = `Which model, environment variables say:
  OPENAI_API_KEY     OpenAI's models
  ANTHROPIC_API_KEY  Anthropic's
  OPENAI_BASE_URL    any server that speaks OpenAI's Chat Completions; a local one
                     needs no key, such as Ollama:
                     OPENAI_BASE_URL=http://localhost:11434/v1 with --model qwen3`

// newModel chooses by provider, else by the model's name, else by what is set.
func newModel(f flags) (agent.Model, error) {
	provider := f.provider
	openAIKey, anthropicKey := os.Getenv("OPENAI_API_KEY"), os.Getenv("ANTHROPIC_API_KEY")
	openAIURL := cmp.Or(f.baseURL, os.Getenv("OPENAI_BASE_URL"))
	if provider == "" {
		switch {
		case strings.HasPrefix(f.model, "claude") && (anthropicKey != "" || openAIURL == ""):
			provider = "anthropic"
		case openAIKey != "" || openAIURL != "":
			provider = "openai"
		case anthropicKey != "":
			provider = "anthropic"
		default:
			return nil, fmt.Errorf("there is no model: no key is set.\n\n%s", modelHelp)
		}
	}
	switch provider {
	case "openai":
		if openAIKey == "" && openAIURL == "" {
			return nil, fmt.Errorf("OPENAI_API_KEY is not set.\n\n%s", modelHelp)
		}
		if f.model == "" && openAIURL != "" && !strings.Contains(openAIURL, "openai.com") {
			return nil, usagef("--model is needed: which models %.200s has, only it knows (Ollama: `ollama list`)", openAIURL)
		}
		return openai.New(openai.FromEnv(openai.Config{Model: cmp.Or(f.model, defaultOpenAI), BaseURL: f.baseURL})), nil
	case "anthropic":
		if anthropicKey == "" && cmp.Or(f.baseURL, os.Getenv("ANTHROPIC_BASE_URL")) == "" {
			return nil, fmt.Errorf("ANTHROPIC_API_KEY is not set.\n\n%s", modelHelp)
		}
		return anthropic.New(anthropic.FromEnv(anthropic.Config{Model: cmp.Or(f.model, defaultAnthropic), BaseURL: f.baseURL})), nil
	}
	return nil, usagef("--provider %.40q: it is openai or anthropic", f.provider)
}

// executorKind is what will run code.
func executorKind(f flags) string {
	return strings.ToLower(strings.TrimSpace(cmp.Or(f.executor, os.Getenv(fromenv.Variable))))
}

// newExecutor starts what runs code.
func newExecutor(ctx context.Context, f flags) (codeexec.CodeExecutor, error) {
	switch f.executor {
	case "", fromenv.Sandbox, fromenv.Container, fromenv.E2B, fromenv.Cube, fromenv.UnsafeLocal:
	default:
		return nil, usagef("--executor %.40q: it is sandbox, container, e2b or unsafe_local", f.executor)
	}
	return fromenv.New(ctx, fromenv.Config{Type: f.executor})
}

// readPolicy returns a preset, or the policy of a file.
func readPolicy(name string) (*validate.Policy, error) {
	if p, err := validate.Preset(name); err == nil {
		return p, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("--policy: it is %s or a file: %w", strings.Join(validate.Presets(), ", "), err)
	}
	p, err := validate.ParsePolicy(data)
	if err != nil {
		return nil, usagef("--policy %s: %w", name, err)
	}
	return p, nil
}
