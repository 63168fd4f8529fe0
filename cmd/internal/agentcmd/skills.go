package agentcmd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/cmd/internal/flagvalue"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

// openSkills finds the skills of folders. One that is there and cannot be read is an
// error: its user would wait for it in vain.
func openSkills(folders []string) (*skill.Folders, error) {
	repository, err := skill.NewFolders(folders...)
	if err != nil {
		return nil, usagef("--skills: %w", err)
	}
	if problems := repository.Problems(); len(problems) > 0 {
		return nil, usagef("--skills: %s: %w", problems[0].Path, problems[0].Err)
	}
	if len(repository.Summaries()) == 0 {
		return nil, usagef("--skills: there is no folder with a SKILL.md in %q", folders)
	}
	return repository, nil
}

// newSkills returns the tools of skills, which run where the executor's code runs.
func newSkills(repository *skill.Folders, executor codeexec.CodeExecutor, f flags) (*skill.Tools, []agent.Tool, error) {
	engine, err := codeexec.EngineOf(executor)
	if err != nil {
		return nil, nil, fmt.Errorf("--skills: %w", err)
	}
	env, err := flagvalue.Pairs("env", f.env)
	if err != nil {
		return nil, nil, usageError{err}
	}
	tools, err := skill.NewTools(skill.Config{Repository: repository, Engine: engine, ExecutionID: "skills", Env: env, Timeout: f.timeout})
	if err != nil {
		return nil, nil, err
	}
	var all []agent.Tool
	for _, d := range tools.Definitions() {
		all = append(all, skillTool{d})
	}
	return tools, all, nil
}

// skillTool is a tool of skills, for the agent. What it runs is code to the agent: it
// is shown, judged by a policy, approved and logged like a model's own.
type skillTool struct{ skill.Definition }

func (t skillTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.InputSchema}
}

func (t skillTool) Call(ctx context.Context, arguments json.RawMessage) (agent.ToolOutput, error) {
	out, err := t.Definition.Call(ctx, arguments)
	return agent.ToolOutput{Text: string(out)}, err
}

// Code is the command that a call would run, or what it would type into one. Arguments
// are read as the skill package reads them, which also takes a string that holds an
// object. What cannot be read here is judged as it was written.
func (t skillTool) Code(arguments []byte) (codeexec.CodeBlock, bool) {
	var wrapped string
	if json.Unmarshal(arguments, &wrapped) == nil {
		arguments = []byte(wrapped)
	}
	var call struct {
		Command string `json:"command"`
		Chars   string `json:"chars"`
	}
	unread := json.Unmarshal(arguments, &call) != nil
	code := call.Command
	switch t.Name {
	case "skill_run", "skill_exec":
	case "skill_write_stdin":
		if code = call.Chars; code == "" && !unread {
			return codeexec.CodeBlock{}, false
		}
	default:
		return codeexec.CodeBlock{}, false
	}
	if unread {
		code = string(arguments)
	}
	return codeexec.CodeBlock{Language: codeexec.Bash, Code: code}, true
}
