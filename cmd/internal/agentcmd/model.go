package agentcmd

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/openai"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/cmd/internal/flagvalue"
	"github.com/cubby-sandbox/cubby/cmd/internal/netflag"
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

// checkURL finds a base URL to which nothing could be sent, as one without http:// in front.
func checkURL(from, base string) error {
	if base == "" {
		return nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// It is not shown: it may hold a password.
		return usagef("%s is no address of an endpoint: write one such as http://localhost:11434/v1", from)
	}
	return nil
}

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
	if err := checkURL("--base-url", f.baseURL); err != nil {
		return nil, err
	}
	switch provider {
	case "openai":
		if err := checkURL("OPENAI_BASE_URL", openAIURL); err != nil {
			return nil, err
		}
		if openAIKey == "" && openAIURL == "" {
			return nil, fmt.Errorf("OPENAI_API_KEY is not set.\n\n%s", modelHelp)
		}
		if f.model == "" && openAIURL != "" && !strings.Contains(openAIURL, "openai.com") {
			return nil, usagef("--model is needed: which models %.200s has, only it knows (Ollama: `ollama list`)", openAIURL)
		}
		return openai.New(openai.FromEnv(openai.Config{Model: cmp.Or(f.model, defaultOpenAI), BaseURL: f.baseURL})), nil
	case "anthropic":
		anthropicURL := cmp.Or(f.baseURL, os.Getenv("ANTHROPIC_BASE_URL"))
		if err := checkURL("ANTHROPIC_BASE_URL", anthropicURL); err != nil {
			return nil, err
		}
		if anthropicKey == "" && anthropicURL == "" {
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

// minMemory is the least that --memory takes, as that of `cubby run`.
const minMemory = 16 << 20

// executors are what --executor takes.
var executors = []string{fromenv.Sandbox, fromenv.Container, fromenv.E2B, fromenv.UnsafeLocal}

// newExecutor starts what runs code.
func newExecutor(ctx context.Context, f flags) (codeexec.CodeExecutor, error) {
	if f.executor != "" && f.executor != fromenv.Cube && !slices.Contains(executors, f.executor) {
		return nil, usagef("--executor %.40q: it is sandbox, container, e2b or unsafe_local", f.executor)
	}
	env, err := flagvalue.Pairs("env", f.env)
	if err != nil {
		return nil, usageError{err}
	}
	kind := executorKind(f)
	if (f.python != "" || f.node != "") && kind != "" && kind != fromenv.Sandbox && kind != fromenv.UnsafeLocal {
		return nil, usagef("--python and --node choose among this machine's; the executor %s has its own", kind)
	}
	network, err := f.network(kind)
	if err != nil {
		return nil, err
	}
	packages, err := f.packages.Packages()
	if err != nil {
		return nil, usageError{err}
	}
	if f.packagesGiven != "" && (kind == fromenv.Container || kind == fromenv.UnsafeLocal) {
		return nil, usagef("--%s is for sandboxes; the executor %s has its own packages", f.packagesGiven, kind)
	}
	limits := codeexec.ResourceLimits{MemoryBytes: int64(f.memory)}
	cfg := fromenv.Config{Type: f.executor, Network: network}
	cfg.Sandbox.Embedded.Reach, cfg.Sandbox.Embedded.HostPorts = f.owner.Reach, f.owner.HostPorts
	cfg.Sandbox.Embedded.IndexEnv = f.owner.IndexEnv
	cfg.Sandbox.Embedded.Python, cfg.Sandbox.Embedded.Node = f.python, f.node
	cfg.Sandbox.Executor.Env, cfg.Sandbox.Executor.Limits = env, limits
	cfg.E2B.Env, cfg.E2B.Limits = env, limits
	cfg.Sandbox.Executor.Packages, cfg.E2B.Packages = packages, packages
	cfg.Container.Env, cfg.Container.MemoryBytes = env, int64(f.memory)
	cfg.UnsafeLocal.Env, cfg.UnsafeLocal.Limits = env, limits
	cfg.UnsafeLocal.Python, cfg.UnsafeLocal.Node = f.python, f.node
	// Each user's own: the library's default is one folder for the whole machine.
	cfg.UnsafeLocal.WorkspaceRoot = filepath.Join(os.TempDir(), fmt.Sprintf("cubby-workspaces-%d", os.Getuid()))
	return fromenv.New(ctx, cfg)
}

// network is what the flags say of where code may connect to; nil if they say nothing.
func (f *flags) network(kind string) (*cubby.Network, error) {
	private := kind == "" || kind == fromenv.Sandbox
	if f.ownerGiven != "" && !private {
		return nil, usagef("--%s is for a sandbox of this machine; the executor is %s", f.ownerGiven, kind)
	}
	if f.netGiven == "" {
		if err := f.owner.Check(); err != nil {
			return nil, usageError{err}
		}
		return nil, nil
	}
	n, err := f.net.Network(os.Getenv)
	closed := !n.Open && len(n.Allow) == 0
	switch {
	case err != nil:
	case kind == fromenv.UnsafeLocal, kind == fromenv.Container && !closed:
		err = fmt.Errorf("--%s: the executor %s cannot be held to it: leave it out, or use --executor sandbox", f.netGiven, kind)
	case private:
		err = netflag.Check(n, f.owner)
	}
	if err != nil {
		return nil, usageError{err}
	}
	return &n, nil
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
