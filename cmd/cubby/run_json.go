package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// runRecord is what is known of a run, whose end may come at any point of it.
type runRecord struct {
	execution  *cubby.Execution // nil if the code was not run
	waited     time.Duration    // how long the run took as this command saw it; 0 if the code was not run
	code       int              // exit status, if the code came to its end
	unenforced []string
	files      *collector // nil before there was a sandbox
	left       []leftFile // beside what files knows
	failure    error      // why the code did not come to its end, unless the run's own error says it
}

// jsonOutcome is the object of --json. Lists are never null: who reads them should
// not have to look for both.
type jsonOutcome struct {
	Stdout            string                `json:"stdout"`
	Stderr            string                `json:"stderr"`
	Results           []cubby.Result        `json:"results"`
	Error             *cubby.ExecutionError `json:"error"`       // the code's own
	Failure           *jsonFailure          `json:"failure"`     // null if the code came to its end
	ExitCode          int                   `json:"exit_code"`   // the code's; with a failure the command's
	DurationMS        int64                 `json:"duration_ms"` // inside the sandbox; with a failure as the command saw it
	TimedOut          bool                  `json:"timed_out"`
	OOMKilled         bool                  `json:"oom_killed"`
	Truncated         bool                  `json:"truncated"`
	LimitsNotEnforced []string              `json:"limits_not_enforced"`
	Files             []savedFile           `json:"files"`
	Left              []leftFile            `json:"left"`      // at most 1,000
	LeftMore          int                   `json:"left_more"` // beside those
	Refused           []jsonRefusal         `json:"refused"`   // connections that the network does not allow, if the code failed
}

// jsonFailure says why the code was not run, or was cut short.
type jsonFailure struct {
	Code    string `json:"code"` // a [cubby.Code] by name
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// jsonRefusal is a connection that the network does not allow.
type jsonRefusal struct {
	Host   string `json:"host"`
	Port   int    `json:"port"` // 0: its name was asked for
	Reason string `json:"reason"`
	Allow  string `json:"allow"` // what --allow has to name; empty: that is not enough
}

// print writes the object for a run that ended with err, and returns the error that
// the command ends with. Wrong use has no object: no run was asked for.
func (k *runRecord) print(w io.Writer, err error) error {
	if _, ok := errors.AsType[usageError](err); ok {
		return err
	}
	object := jsonOutcome{ExitCode: k.code, LimitsNotEnforced: k.unenforced, DurationMS: k.waited.Milliseconds()}
	if ex := k.execution; ex != nil {
		object.Stdout, object.Stderr, object.Results, object.Error = ex.Stdout, ex.Stderr, ex.Results, ex.Error
		if ex.Duration > 0 { // else nobody in the sandbox came to say it
			object.DurationMS = ex.Duration.Milliseconds()
		}
		object.TimedOut, object.OOMKilled, object.Truncated = ex.TimedOut, ex.OOMKilled, ex.Truncated
		for _, r := range ex.Refused {
			object.Refused = append(object.Refused, jsonRefusal(r))
		}
	}
	if k.files != nil {
		object.Files, object.LeftMore = k.files.saved, k.files.more
		object.Left = slices.Concat(k.files.left, k.left)
	}
	failure := k.failure
	if _, told := errors.AsType[status](err); failure == nil && !told {
		failure = err
	}
	if failure != nil {
		_, message, hint := describe(failure)
		object.Failure = &jsonFailure{cmp.Or(cubby.CodeOf(failure), cubby.CodeInternal).String(), message, hint}
		object.ExitCode, _, _ = describe(err)
	}
	object.Results = orEmpty(object.Results)
	object.LimitsNotEnforced = orEmpty(object.LimitsNotEnforced)
	object.Files = orEmpty(object.Files)
	object.Left = orEmpty(object.Left)
	object.Refused = orEmpty(object.Refused)
	enc := json.NewEncoder(terminal.Sanitize(w, terminal.Is(w)))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if werr := enc.Encode(object); err == nil {
		err = werr
	}
	return err
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
