package codeexec_test

import (
	"errors"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Two failures in a row are enough; a success in between starts anew.
func TestFailureCounter(t *testing.T) {
	bad, good := codeexec.CodeExecutionResult{Outcome: codeexec.OutcomeFailed}, ok("")
	c := codeexec.NewFailureCounter(0)
	for i, step := range []struct {
		r    codeexec.CodeExecutionResult
		err  error
		want bool
	}{{bad, nil, true}, {good, nil, true}, {bad, nil, true}, {good, errors.New("x"), false}, {good, nil, true}} {
		if got := c.Record(step.r, step.err); got != step.want || c.OK() != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	c.Record(bad, nil)
	c.Record(codeexec.CodeExecutionResult{Outcome: codeexec.OutcomeDeadlineExceeded}, nil)
	if c.OK() {
		t.Error("two failures are not enough")
	}
	c.Reset()
	if !c.OK() {
		t.Error("a reset does not start anew")
	}
	never := codeexec.NewFailureCounter(-1)
	for range 10 {
		if !never.Record(bad, nil) {
			t.Fatal("a negative number stops")
		}
	}
}
