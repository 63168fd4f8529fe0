package codeexec_test

import (
	"context"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

func TestLosses(t *testing.T) {
	type instance = codeexec.Instance
	for name, tc := range map[string]struct {
		before, now      instance
		variables, files bool
	}{
		"nothing":                     {instance{"s", 1, 1}, instance{"s", 1, 1}, false, false},
		"a kernel":                    {instance{"s", 1, 1}, instance{"s", 2, 1}, true, false},
		"a sandbox":                   {instance{"s", 1, 1}, instance{"t", 2, 2}, true, true},
		"a sandbox without variables": {instance{"s", 0, 1}, instance{"t", 0, 2}, false, true},
		"another sandbox, unsaid":     {instance{"s", 1, 1}, instance{"t", 1, 1}, true, true},
		"there was no state":          {instance{}, instance{"s", 1, 1}, false, false},
		"there is no state":           {instance{"s", 1, 1}, instance{}, false, false},
	} {
		if variables, files := tc.now.Losses(tc.before); variables != tc.variables || files != tc.files {
			t.Errorf("%s: variables %v, files %v", name, variables, files)
		}
	}
}

// wrapper is an executor that is another, and something more.
type wrapper struct{ codeexec.CodeExecutor }

func (w wrapper) Unwrap() codeexec.CodeExecutor { return w.CodeExecutor }

// What wraps an executor does not hide what that can do.
func TestAs(t *testing.T) {
	inner := &fake{}
	wrapped := wrapper{codeexec.Observe(codeexec.Observe(wrapper{inner}, codeexec.ObserveOptions{}), codeexec.ObserveOptions{})}
	if found, ok := codeexec.As[*fake](wrapped); !ok || found != inner {
		t.Errorf("got %v, %v", found, ok)
	}
	if _, ok := codeexec.As[interface{ Nothing() }](wrapped); ok {
		t.Error("it has what it does not have")
	}
	if _, ok := codeexec.As[*fake](nil); ok {
		t.Error("nothing is a fake")
	}
	own, err := codeexec.EngineOf(wrapped)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Manager().CreateWorkspace(context.Background(), "a", codeexec.WorkspacePolicy{}); err != nil {
		t.Error(err)
	}
}
