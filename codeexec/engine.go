package codeexec

import (
	"errors"

	"github.com/cubby-sandbox/cubby"
)

// NewEngine makes an engine of its parts. A part may be one that wraps another
// engine's, such as a [ProgramRunner] that adds variables to each program.
func NewEngine(m WorkspaceManager, f WorkspaceFS, r ProgramRunner, c Capabilities) Engine {
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
