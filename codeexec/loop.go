package codeexec

import (
	"cmp"
	"sync"
)

// FailureCounter tells a loop when to stop running what the model writes: after
// so many failed executions in a row. It is safe for concurrent use.
type FailureCounter struct {
	mu    sync.Mutex
	most  int
	inRow int
}

// NewFailureCounter returns a counter that is exhausted after attempts failures
// in a row; 0 means [ErrorRetryAttempts], a negative number never.
func NewFailureCounter(attempts int) *FailureCounter {
	return &FailureCounter{most: cmp.Or(attempts, ErrorRetryAttempts)}
}

// Record counts an execution: one that failed, timed out or could not be done is
// a failure, any other starts the count anew. It reports whether code may still
// be run.
func (c *FailureCounter) Record(r CodeExecutionResult, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.Outcome != OutcomeOK {
		c.inRow++
	} else {
		c.inRow = 0
	}
	return c.ok()
}

// OK reports whether code may still be run.
func (c *FailureCounter) OK() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ok()
}

func (c *FailureCounter) ok() bool { return c.most < 0 || c.inRow < c.most }

// Reset starts the count anew, as for a new question.
func (c *FailureCounter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inRow = 0
}
