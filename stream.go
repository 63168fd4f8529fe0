package cubby

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Bounds on the stream of one execution, in bytes.
const (
	maxLine      = 96 << 20  // one event
	maxResults   = 256 << 20 // all results of an execution
	maxErrorText = 1 << 20   // each part of an uncaught error
	firstBuffer  = 32 << 10

	resultOverhead = 512 // what a Result takes beside its data
)

var errCutStream = errors.New("the stream ended before the execution did")

// eventReader reads the NDJSON of POST /execute. The sandbox writes it, so it
// is hostile.
type eventReader struct {
	in   *bufio.Reader
	long []byte // an event longer than in's buffer
	on   callbacks
	log  *slog.Logger

	ex             Execution
	stdout, stderr output
	resultBytes    int64
	lines          int   // of results
	kept           []int // which of them the execution has, from 0
	commandFailed  bool
}

// output collects one stream up to a bound.
type output struct {
	text strings.Builder
	left int64 // bytes
}

// keep adds as much of s as fits, in whole characters, and returns that part.
func (o *output) keep(s string) (kept string, all bool) {
	kept = s
	if int64(len(s)) > o.left {
		n := int(o.left)
		for n > 0 && s[n]&0xC0 == 0x80 {
			n--
		}
		kept = s[:n]
		o.left = 0
	} else {
		o.left -= int64(len(s))
	}
	o.text.WriteString(kept)
	return kept, len(kept) == len(s)
}

func newEventReader(r io.Reader, maxOutput int64, on callbacks, log *slog.Logger) *eventReader {
	return &eventReader{
		in: bufio.NewReaderSize(r, firstBuffer), on: on, log: log,
		stdout: output{left: maxOutput}, stderr: output{left: maxOutput},
	}
}

// run reads to the end of the execution. Its errors: errCutStream or a read
// error when the sandbox went away, an *Error for a malformed stream.
func (r *eventReader) run() error {
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			continue
		}
		done, err := r.event(line)
		if done || err != nil {
			return err
		}
	}
}

// line returns the next line without its end, valid until the next call.
func (r *eventReader) line() ([]byte, error) {
	r.long = r.long[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.long)+len(part) > maxLine {
			return nil, &Error{Code: CodeInternal, Err: fmt.Errorf("the sandbox sent a line longer than %d MiB", maxLine>>20)}
		}
		switch {
		case err == nil && len(r.long) == 0:
			return trimEnd(part), nil
		case err == nil:
			r.long = append(r.long, part...)
			return trimEnd(r.long), nil
		case errors.Is(err, bufio.ErrBufferFull):
			r.long = append(r.long, part...)
		case errors.Is(err, io.EOF):
			return nil, errCutStream
		default:
			return nil, err
		}
	}
}

func trimEnd(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

// event acts on one line and says whether it was the last.
func (r *eventReader) event(line []byte) (done bool, err error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := decode(line, &head); err != nil {
		return false, err
	}
	switch head.Type {
	case protocol.EventExecutions:
		var e struct {
			Count int `json:"execution_count"`
		}
		if err := decode(line, &e); err != nil {
			return false, err
		}
		r.ex.Count = e.Count
	case protocol.EventStdout, protocol.EventStderr:
		var e struct {
			Text string `json:"text"`
		}
		if err := decode(line, &e); err != nil {
			return false, err
		}
		if head.Type == protocol.EventStdout {
			r.print(&r.stdout, e.Text, r.on.stdout)
		} else {
			r.print(&r.stderr, e.Text, r.on.stderr)
		}
	case protocol.EventResult:
		return false, r.result(line)
	case protocol.EventError:
		var e protocol.ErrorData
		if err := decode(line, &e); err != nil {
			return false, err
		}
		r.ex.Error = &ExecutionError{
			Name: cut(e.Name, maxErrorText), Value: cut(e.Value, maxErrorText), Traceback: cut(e.Traceback, maxErrorText),
		}
		if r.on.error != nil {
			r.on.error(*r.ex.Error)
		}
	case protocol.EventEnd:
		return true, r.end(line)
	}
	// A keepalive, or an event of a newer server: nothing to do.
	return false, nil
}

func (r *eventReader) print(to *output, text string, call func(string)) {
	kept, all := to.keep(text)
	if !all {
		r.truncate()
	}
	if call != nil && kept != "" {
		call(kept)
	}
}

func (r *eventReader) truncate() {
	r.ex.Truncated = true
	if r.ex.Limit == "" {
		r.ex.Limit = "output"
	}
}

func (r *eventReader) result(line []byte) error {
	// A result costs more than its text: a million empty ones count, too.
	number := r.lines
	r.lines++
	cost := int64(len(line)) + resultOverhead
	if r.resultBytes+cost > maxResults {
		r.truncate()
		return nil
	}
	r.resultBytes += cost
	var res Result
	if err := res.UnmarshalJSON(line); err != nil {
		// A form that cannot be decoded takes nothing from the others, but a line
		// that is no JSON at all does.
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return malformed(err)
		}
		r.log.Warn("malformed result from the sandbox", "err", err)
	}
	r.ex.Results, r.kept = append(r.ex.Results, res), append(r.kept, number)
	if r.on.result != nil {
		r.on.result(res)
	}
	return nil
}

func (r *eventReader) end(line []byte) error {
	var e protocol.EndOfExecution
	if err := decode(line, &e); err != nil {
		return err
	}
	x := &r.ex
	x.ExitCode = e.ExitCode
	if x.Error != nil && x.ExitCode == 0 {
		x.ExitCode = 1 // a server that does not send Cubby's fields
	}
	const longest = 366 * 24 * time.Hour // a number that cannot overflow
	x.Duration = time.Duration(min(max(e.DurationMS, 0), longest.Milliseconds())) * time.Millisecond
	x.TimedOut, x.OOMKilled, x.Interrupted = e.TimedOut, e.OOMKilled, e.Interrupted
	x.StateLost, x.FreshKernel = e.StateLost, e.FreshKernel
	r.commandFailed = e.CommandFailed
	x.Truncated = x.Truncated || e.Truncated
	if e.Limit != "" {
		x.Limit = cut(e.Limit, 64)
	}
	for _, left := range e.LeftOut {
		i, ok := slices.BinarySearch(r.kept, left.Result)
		if ok && len(x.Results[i].LeftOut) < maxNames {
			x.Results[i].LeftOut = append(x.Results[i].LeftOut, cut(left.Form, 64))
		}
	}
	return nil
}

// execution returns what was read so far.
func (r *eventReader) execution() *Execution {
	ex := r.ex
	ex.Stdout, ex.Stderr = r.stdout.text.String(), r.stderr.text.String()
	return &ex
}

func decode(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return malformed(err)
	}
	return nil
}

func malformed(err error) error {
	return &Error{Code: CodeInternal, Err: fmt.Errorf("the sandbox sent a malformed line: %w", err)}
}
