package codeexec

// Instance says which state there is for an execution id when an execution has
// ended: which variables and which files the next one will find. Two results of
// one execution id of one executor (or pool) are compared:
//
//   - equal: everything that the first left is still there, but for what code
//     itself has removed since
//   - Memory has grown: variables were lost, as when a kernel was killed for its
//     memory or its time, made room for others, or was restarted by somebody
//   - Files has grown: the files were lost, too, those that were put in included:
//     another sandbox or container has taken the place of the first, and ID is its
//     name
//
// What is not lost does not count: a sandbox that was paused and resumed with its
// memory is the same Instance; resumed with its files alone, it has another Memory.
//
// The counts begin with 1 or above and never fall. 0 says that there is nothing
// to lose: Memory is 0 where variables do not last from call to call, Files where
// files do not. So the zero value is that of an executor that keeps no state, such
// as one that has a sandbox for each call: what code is to find must be given with
// each call.
//
// Counts of different execution ids or executors say nothing about each other. An
// ID may be compared with any other of the same backend: results that have the
// same saw the files of one sandbox, container or folder.
type Instance struct {
	// ID names the sandbox or container, as its server does; for an executor
	// without one, the folder of this machine that the code runs in.
	ID string `json:"id,omitempty"`
	// Memory grows when variables were lost.
	Memory int `json:"memory,omitempty"`
	// Files grows when files were lost.
	Files int `json:"files,omitempty"`
}

// Losses returns what was lost since an earlier result of the same execution id.
// That is nothing, if either is the zero value: then there is nothing to lose.
func (i Instance) Losses(since Instance) (variables, files bool) {
	if i == (Instance{}) || since == (Instance{}) {
		return false, false
	}
	files = i.Files > since.Files || i.ID != since.ID && i.Files > 0
	variables = since.Memory > 0 && (i.Memory > since.Memory || files)
	return variables, files
}

// Unwrapper is a [CodeExecutor] that adds something to another one, and tells
// which that is. What the other can do beside running code is then found by [As].
type Unwrapper interface {
	Unwrap() CodeExecutor
}

// As finds the first in a chain of wrapped executors that is a T, an interface
// such as [EngineProvider] or the type of an executor, beginning with e itself.
// To use what it finds is to go past the wrappers before it.
func As[T any](e CodeExecutor) (T, bool) {
	for e != nil {
		if found, ok := e.(T); ok {
			return found, true
		}
		u, ok := e.(Unwrapper)
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	var none T
	return none, false
}
