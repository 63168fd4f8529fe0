//go:build linux

package interpreter

import (
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// fail reports an error that is not the code's.
func (c *cell) fail(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.ExitCode = 1
	c.emit(protocol.Event{Type: protocol.EventError, ErrorData: &protocol.ErrorData{Name: name, Value: value, Traceback: name + ": " + value}})
}

// syntaxError reports what TypeScript's compiler cannot read.
func (c *cell) syntaxError(at *typescript.SyntaxError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.ExitCode = 1
	failure := &protocol.ErrorData{Name: "SyntaxError", Value: at.Error(), Traceback: "SyntaxError: " + at.Error()}
	if at.Line > 0 {
		failure.Value = fmt.Sprintf("%s (line %d)", at.Text, at.Line)
		failure.Traceback = fmt.Sprintf("cell.ts:%d\n%s\n%*s\n\nSyntaxError: %s", at.Line, at.LineText, at.Column, "^", at.Text)
	}
	c.emit(protocol.Event{Type: protocol.EventError, ErrorData: failure})
}

// conclude says how the cell ended, as errors and as the fields of the last line.
func (c *cell) conclude(language string, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.died != nil
	c.end.StateLost = lost
	var failure *protocol.ErrorData
	switch {
	case c.stopped.Load() == pastTime:
		c.end.TimedOut, c.end.Limit, c.end.ExitCode = true, "time", 124
		failure = &protocol.ErrorData{Name: "TimeoutError", Value: fmt.Sprintf("execution exceeded %g s", timeout.Seconds())}
		failure.Traceback = failure.Name + ": " + failure.Value
		if c.failure != nil && c.failure.Traceback != "" {
			failure.Traceback = c.failure.Traceback + "\n\n" + failure.Traceback
		}
		if lost {
			c.say(true, fmt.Sprintf("[cubby] the %s kernel did not stop and was killed: its variables are gone\n", language))
		}
	case c.oom.Load():
		c.end.OOMKilled = true
		c.end.Limit, c.end.ExitCode = "memory", 137
		failure = &protocol.ErrorData{Name: "MemoryError", Value: "the sandbox is out of memory: its largest process was killed"}
		failure.Traceback = failure.Name + ": " + failure.Value
	case c.stopped.Load() == clientGone:
		c.end.Interrupted, c.end.ExitCode = true, 130
	case lost && c.died.Signaled():
		c.end.ExitCode = 128 + int(c.died.Signal())
		failure = &protocol.ErrorData{Name: "KernelDied", Value: reaper.Describe(*c.died)}
		failure.Traceback = failure.Name + ": " + failure.Value
	case lost:
		if c.end.ExitCode = c.died.ExitStatus(); c.end.ExitCode != 0 {
			failure = &protocol.ErrorData{Name: "KernelExited", Value: reaper.Describe(*c.died)}
			failure.Traceback = failure.Name + ": " + failure.Value
		}
	}
	if failure != nil {
		c.emit(protocol.Event{Type: protocol.EventError, ErrorData: failure})
	}
}

// finish writes the last line.
func (c *cell) finish(start time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.DurationMS = time.Since(start).Milliseconds()
	end := c.end
	c.emit(protocol.Event{Type: protocol.EventEnd, EndOfExecution: &end})
}
