package protocol

import (
	"bytes"
	"encoding/json"
)

// Ports inside a sandbox (E2B: envd 49983, code interpreter 49999).
const (
	EnvdPort            = 49983
	CodeInterpreterPort = 49999
)

// Headers of E2B's data plane and of its control plane.
const (
	HeaderSandboxID   = "E2b-Sandbox-Id"
	HeaderSandboxPort = "E2b-Sandbox-Port"
	HeaderAccessToken = "X-Access-Token"
	HeaderAPIKey      = "X-API-Key"
	// HeaderTrafficToken is asked for at the ports of a sandbox that was created
	// closed to the public.
	HeaderTrafficToken = "E2b-Traffic-Access-Token"
	// HeaderKeepalive asks envd for a sign of life on a stream that says nothing:
	// every so many seconds, a whole number.
	HeaderKeepalive = "Keepalive-Ping-Interval"
)

// The user of E2B's templates, who runs code and commands that name no other.
const (
	DefaultUser = "user"
	DefaultHome = "/home/user"
)

// Headers that only Cubby's own client sends with POST /execute; other servers
// ignore them.
const (
	// HeaderTimeoutMS bounds the execution, in milliseconds of wall time.
	HeaderTimeoutMS = "Cubby-Timeout-Ms"
	// HeaderMaxOutput bounds stdout and stderr, in bytes for each stream.
	HeaderMaxOutput = "Cubby-Max-Output"
	// HeaderDrain, set to 1, asks JavaScript to end only when nothing is pending
	// any more, timers and sockets included, as `node file.js` does. With a Program
	// Python, too, ends as an interpreter does: it waits for its threads and calls
	// what atexit knows.
	HeaderDrain = "Cubby-Drain"
)

// ExecuteRequest is the body of POST /execute. ContextID and Language exclude
// each other.
type ExecuteRequest struct {
	Code      string            `json:"code"`
	ContextID string            `json:"context_id,omitempty"`
	Language  string            `json:"language,omitempty"`
	EnvVars   map[string]string `json:"env_vars,omitempty"`
	// Program runs the code as a program of its own would run (Cubby).
	Program *Program `json:"cubbyProgram,omitempty"`
	// Stdin gives the code a standard input (Cubby). Without it there is none, as
	// with E2B: Python's input() raises.
	Stdin *Stdin `json:"cubbyStdin,omitempty"`
}

// Program is how code learns its own name and arguments.
type Program struct {
	// Name is the file that the code came from, without a folder, "-" for standard
	// input and "" for a piece of code that is in no file. The file is
	// made in the context's folder, unless there is one.
	Name string   `json:"name,omitempty"`
	Args []string `json:"args,omitempty"`
}

// Stdin is the standard input of an execution.
type Stdin struct {
	// ID names the input, as the client chose it: up to 64 letters, digits and
	// dashes, and nobody else should be able to guess it. What is sent to
	// POST StdinPath/ID while the execution runs is what the code reads, until a
	// request with the query "end" is through. Without an ID the input is empty.
	ID string `json:"id,omitempty"`
}

// StdinPath is where the input of executions is sent to. A GET of it answers 204
// where executions take Program and Stdin (Cubby).
const StdinPath = "/execute/stdin"

// Context is a kernel with its own state and working directory.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// CreateContextRequest is the body of POST /contexts.
type CreateContextRequest struct {
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	// Shell asks for a richer shell of the language: "ipython" for Python. Not
	// in E2B's protocol.
	Shell string `json:"shell,omitempty"`
}

// Types of the lines that POST /execute answers.
const (
	EventExecutions = "number_of_executions"
	EventStdout     = "stdout"
	EventStderr     = "stderr"
	EventResult     = "result"
	EventError      = "error"
	EventKeepalive  = "keepalive"
	EventEnd        = "end_of_execution"
)

// Event is one line of the NDJSON that POST /execute answers. The wire is
// ASCII: everything else is \u-escaped, so that clients may cut it anywhere.
type Event struct {
	Type string `json:"type"`

	ExecutionCount int `json:"execution_count,omitempty"` // number_of_executions

	Text      string `json:"text,omitempty"`      // stdout, stderr; text/plain of a result
	Timestamp string `json:"timestamp,omitempty"` // stdout, stderr: RFC 3339

	*ResultData     // result
	*ErrorData      // error
	*EndOfExecution // end_of_execution
}

// ResultData is what a result line carries beside its text, under E2B's names.
// PNG, JPEG and PDF are base64; JSON, Data, Chart and Extra are as the kernel wrote
// them, so that no number loses a digit.
type ResultData struct {
	HTML         string                     `json:"html,omitempty"`
	Markdown     string                     `json:"markdown,omitempty"`
	SVG          string                     `json:"svg,omitempty"`
	PNG          string                     `json:"png,omitempty"`
	JPEG         string                     `json:"jpeg,omitempty"`
	PDF          string                     `json:"pdf,omitempty"`
	LaTeX        string                     `json:"latex,omitempty"`
	JSON         json.RawMessage            `json:"json,omitempty"`
	JavaScript   string                     `json:"javascript,omitempty"`
	Data         json.RawMessage            `json:"data,omitempty"`
	Chart        json.RawMessage            `json:"chart,omitempty"`
	IsMainResult bool                       `json:"is_main_result"`
	Extra        map[string]json.RawMessage `json:"extra"`
}

// ErrorData is an uncaught error of the code that ran.
type ErrorData struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// EndOfExecution is what Cubby adds to the last line; E2B's clients ignore it.
type EndOfExecution struct {
	ExitCode    int   `json:"exit_code"`
	DurationMS  int64 `json:"duration_ms"`
	Truncated   bool  `json:"truncated,omitempty"`
	TimedOut    bool  `json:"timed_out,omitempty"`
	OOMKilled   bool  `json:"oom_killed,omitempty"`
	Interrupted bool  `json:"interrupted,omitempty"`
	// CommandFailed says that a command of a cell's own line or magic failed (!pip in
	// Python), which is no error of the cell.
	CommandFailed bool `json:"command_failed,omitempty"`
	// Limit is the bound that was hit: "time", "memory" or "output".
	Limit string `json:"limit,omitempty"`
	// StateLost says that the kernel ended: variables are gone and the next
	// call starts a fresh one.
	StateLost bool `json:"state_lost,omitempty"`
	// FreshKernel says that this call began in a kernel that replaced a dead one.
	FreshKernel bool `json:"fresh_kernel,omitempty"`
	// LeftOut are forms of results that were too large. They are told here, since
	// E2B's Python client fails at a result with a field that it does not know.
	LeftOut LeftOuts `json:"left_out,omitempty"`
}

// LeftOut is a form that a result does not have because it is too large.
type LeftOut struct {
	Result int    `json:"result"` // from 0, in the order of the results' lines
	Form   string `json:"form"`   // the field that would have it, such as "json"
}

// MaxLeftOut bounds a list of LeftOut.
const MaxLeftOut = 1000

// LeftOuts takes at most MaxLeftOut entries from the wire: a list of empty ones takes
// ten times the size of its JSON.
type LeftOuts []LeftOut

// UnmarshalJSON keeps the first MaxLeftOut entries.
func (l *LeftOuts) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return err // null, or no list: no entries
	}
	for *l = nil; dec.More() && len(*l) < MaxLeftOut; {
		var entry LeftOut
		if err := dec.Decode(&entry); err != nil {
			return err
		}
		*l = append(*l, entry)
	}
	return nil
}

// HeaderVersion carries version.Build on the guest's answers to /init and
// /health.
const HeaderVersion = "Cubby-Version"

// HeaderSignalGroup, set to 1, asks envd's SendSignal to signal the whole process
// group of the command and not the process alone (Cubby).
const HeaderSignalGroup = "Cubby-Signal-Group"

// HeaderAttached, set to 1, makes the end of a call of envd's Start the end of the
// command, too: without it the command goes on when its client has gone (Cubby).
const HeaderAttached = "Cubby-Attached"
