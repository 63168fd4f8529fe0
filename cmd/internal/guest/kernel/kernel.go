// Package kernel holds the language kernels that run inside a sandbox, and says
// how to start one.
//
// A kernel is a process that keeps the state of a programming language between
// calls. It has /dev/null as standard input (but see [Request.Stdin]), pipes as
// standard output and error (the code and its children write there directly) and,
// on descriptor 3, one end of a stream socket that carries one JSON object a line: requests in, events out
// (see [Request] and [Event]). A kernel runs one request at a time and survives a
// SIGINT, which ends the request that is running.
//
// The kernels of Python and JavaScript are scripts, which the guest writes to a
// folder that the code cannot change (see [Files]). Bash has no JSON and reads
// sockets byte by byte, so a Bash kernel is this program again, running
// [BashMain], with the shell as its child: see bash.go.
package kernel

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"
)

//go:embed *.py *.cjs *.sh
var scripts embed.FS

// BashArg is the first argument with which a program that embeds this package
// must call [BashMain], before anything else: the Bash kernel is started as
// `/proc/self/exe bash-kernel SHELL DIR`.
const BashArg = "bash-kernel"

// Command says how to start a kernel. The caller adds the descriptors, the user,
// the working directory and the environment that the code is to see.
type Command struct {
	// Path is the program, and Args its arguments without the program's name.
	Path string
	Args []string
	// Env holds KEY=value pairs which this kernel needs besides the caller's. The
	// caller puts them last, so that they win.
	Env []string
}

// Request is what the guest asks of a kernel.
type Request struct {
	// Op is "execute", OpInterrupt or OpAnew.
	Op string `json:"op"`
	// ID is repeated in every event about this request.
	ID int64 `json:"id"`
	// Code is the source, without NUL bytes.
	Code string `json:"code"`
	// TypeScript asks the JavaScript kernel to erase the types of Code first.
	TypeScript bool `json:"typescript,omitempty"`
	// Anew says that the kernel's machine is a copy, and that generators of random
	// numbers draw anew before the code runs.
	Anew bool `json:"anew,omitempty"`
	// Keep is set before the code runs, and stays.
	Keep map[string]string `json:"keep,omitempty"`
	// Env is set after Keep, and what was there is put back when the code has run.
	Env map[string]string `json:"env,omitempty"`
	// Cwd is the working directory for this call alone; empty leaves it as it is.
	Cwd string `json:"cwd,omitempty"`
	// Drain asks JavaScript to answer "done" only when nothing is pending any
	// more, timers and sockets included, as `node file.js` ends. If there is a
	// Program, Python waits for its threads and calls atexit's functions. Bash
	// ignores it.
	Drain bool `json:"drain,omitempty"`
	// Program is the name and the arguments that the code sees as its own; nil is
	// a cell without them.
	Program *Program `json:"program,omitempty"`
	// Stdin is a file that is the standard input for this call; empty means that
	// there is none. The kernel sends "input" once it has opened it. If it is a
	// named pipe, the caller holds it open for writing until then.
	Stdin string `json:"stdin,omitempty"`
	// Ack says that each result but a main one is answered with OpAck: the
	// kernel waits for it before code goes on to print.
	Ack bool `json:"ack,omitempty"`
}

// Program is how code learns its own name and arguments, as an interpreter tells
// it: sys.argv, process.argv, $0 and $1.
type Program struct {
	// Name is the name of the file, "-" for standard input, "" for none.
	Name string `json:"name,omitempty"`
	// File is the absolute path of the source, if it is in a file.
	File string   `json:"file,omitempty"`
	Args []string `json:"args,omitempty"`
}

// OpAck is the Op of the answer to a result.
const OpAck = "ack"

// OpInterrupt asks the JavaScript kernel to end the request with that ID. If it has
// not ended SignalDelay later, the kernel gets a SIGINT: see node.cjs. The other
// kernels get only the signal.
const (
	OpInterrupt = "interrupt"
	SignalDelay = 100 * time.Millisecond
)

// OpAnew has the JavaScript kernel's generators of random numbers draw anew, as
// SignalAnew has those of Python's: at once, also while code runs that lets anything
// else run. Both send "anew" when they have. A Bash kernel draws for Request.Anew only.
const (
	OpAnew     = "anew"
	SignalAnew = syscall.SIGURG // which ends no process that does not expect it
)

// Event is a message from a kernel. Which fields are set depends on Ev.
type Event struct {
	// Ev is "ready" (once), "anew" (see OpAnew), "input" (see Request.Stdin),
	// "result", "error", or "done" (last of a request).
	Ev string `json:"ev"`
	ID int64  `json:"id,omitempty"`

	// Main is true for the value of the last expression, and Data maps MIME types
	// to JSON as the kernel wrote it: a string (text or base64) or anything else.
	// They belong to "result", as LeftOut does.
	Main bool                       `json:"main,omitempty"`
	Data map[string]json.RawMessage `json:"data,omitempty"`
	// LeftOut has the MIME types of forms that are too large to be sent.
	LeftOut []string `json:"left_out,omitempty"`

	// Name, Value and Traceback belong to "error".
	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Traceback string `json:"traceback,omitempty"`

	// ExitCode and CommandFailed belong to "done". CommandFailed says that a command
	// which the cell ran by a line or a magic of its language failed (Python's !).
	ExitCode      int  `json:"exit_code"`
	CommandFailed bool `json:"command_failed,omitempty"`
}

// Write writes the scripts to dir, which it makes.
func Write(dir string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the kernels: %w", err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return fmt.Errorf("write the kernels: %w", err)
		}
	}
	return nil
}

// Files returns the scripts by name. The guest writes them to a folder which the
// code can read but not change; that folder is the dir of the functions below.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	entries, err := fs.ReadDir(scripts, ".")
	if err != nil {
		return nil, fmt.Errorf("list the kernel scripts: %w", err)
	}
	for _, e := range entries {
		b, err := scripts.ReadFile(e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the kernel script %s: %w", e.Name(), err)
		}
		files[e.Name()] = b
	}
	return files, nil
}

// Python starts the kernel of python.py, which needs no package, or, if ipython is true, the one around IPython's
// shell, which must be installed.
func Python(interpreter, dir string, ipython bool) Command {
	args := []string{"-u", path.Join(dir, "python.py")}
	if ipython {
		args = append(args, "--ipython")
	}
	return Command{Path: interpreter, Args: args}
}

// Node starts the JavaScript kernel, which also runs what becomes of TypeScript. It needs Node 12 or later.
func Node(interpreter, dir string) Command {
	// The parser that every Node carries is only reachable with this flag.
	return Command{Path: interpreter, Args: []string{"--expose-internals", "--no-warnings", path.Join(dir, "node.cjs")}}
}

// Bash starts the Bash kernel. Only a program that calls [BashMain] can use it.
func Bash(shell, dir string) Command {
	return Command{Path: "/proc/self/exe", Args: []string{BashArg, shell, dir}}
}
