package codeexec

import (
	"context"
	"errors"
	"maps"

	"github.com/cubby-sandbox/cubby"
)

// NewEngine makes an engine of its parts; it can do no more than they.
func NewEngine(m WorkspaceManager, f WorkspaceFS, r ProgramRunner) Engine {
	return NewEngineWithCapabilities(m, f, r, Capabilities{})
}

// NewEngineWithCapabilities makes an engine of its parts.
func NewEngineWithCapabilities(m WorkspaceManager, f WorkspaceFS, r ProgramRunner, c Capabilities) Engine {
	return engine{m, f, r, c}
}

type engine struct {
	m WorkspaceManager
	f WorkspaceFS
	r ProgramRunner
	c Capabilities
}

func (e engine) Manager() WorkspaceManager { return e.m }
func (e engine) FS() WorkspaceFS           { return e.f }
func (e engine) Runner() ProgramRunner     { return e.r }
func (e engine) Describe() Capabilities    { return e.c }

// EngineOf returns an executor's engine, or that of the executor it wraps (see
// [As]). It fails with unimplemented when there is none.
func EngineOf(e CodeExecutor) (Engine, error) {
	if p, ok := As[EngineProvider](e); ok {
		if engine := p.Engine(); engine != nil {
			return engine, nil
		}
	}
	return nil, &cubby.Error{Op: "find workspaces", Code: cubby.CodeUnimplemented, Err: errors.New("this executor has no workspaces")}
}

// withEngine is an executor with another engine than its own.
type withEngine struct {
	CodeExecutor
	engine Engine
}

func (w withEngine) Engine() Engine { return w.engine }

// Unwrap implements [Unwrapper].
func (w withEngine) Unwrap() CodeExecutor { return w.CodeExecutor }

// rewire returns e with its engine changed; an executor without one stays as it
// is.
func rewire(e CodeExecutor, change func(Engine) Engine) CodeExecutor {
	if own, err := EngineOf(e); err == nil {
		return withEngine{e, change(own)}
	}
	return e
}

// RunEnvProvider gives variables for the programs of one call.
type RunEnvProvider func(ctx context.Context) map[string]string

// NewEnvInjectingEngine gives every program of e the provider's variables. A
// program's own Env wins, and one with CleanEnv gets none.
func NewEnvInjectingEngine(e Engine, provider RunEnvProvider) Engine {
	if provider == nil {
		return e
	}
	return engine{e.Manager(), e.FS(), envRunner{e.Runner(), provider}, e.Describe()}
}

// NewEnvInjectingCodeExecutor does it for the workspaces of an executor.
func NewEnvInjectingCodeExecutor(e CodeExecutor, provider RunEnvProvider) CodeExecutor {
	return rewire(e, func(own Engine) Engine { return NewEnvInjectingEngine(own, provider) })
}

type envRunner struct {
	ProgramRunner
	provider RunEnvProvider
}

func (r envRunner) with(ctx context.Context, spec RunProgramSpec) RunProgramSpec {
	if spec.CleanEnv {
		return spec
	}
	env := maps.Clone(r.provider(ctx))
	if env == nil {
		return spec
	}
	maps.Copy(env, spec.Env)
	spec.Env = env
	return spec
}

func (r envRunner) RunProgram(ctx context.Context, ws Workspace, spec RunProgramSpec) (RunResult, error) {
	return r.ProgramRunner.RunProgram(ctx, ws, r.with(ctx, spec))
}

func (r envRunner) StartProgram(ctx context.Context, ws Workspace, spec InteractiveProgramSpec) (ProgramSession, error) {
	spec.RunProgramSpec = r.with(ctx, spec.RunProgramSpec)
	return r.ProgramRunner.StartProgram(ctx, ws, spec)
}
