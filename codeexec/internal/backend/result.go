package backend

import (
	"cmp"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// ResultBuilder puts a [codeexec.CodeExecutionResult] together, block by block. The zero
// value is ready to use, by one goroutine at a time.
type ResultBuilder struct {
	// MaxOutput bounds the output of all blocks together, in bytes; 0 means
	// cubby.DefaultMaxOutput.
	MaxOutput int
	// OnOutput is the input's; see [RelayOutput].
	OnOutput func(stream, text string)

	res    codeexec.CodeExecutionResult
	output strings.Builder
	left   *fileBudget
}

// Block is a block that runs: it takes what the code says, in order. Its methods
// may be called from several goroutines. One of the End methods ends it; what the
// code says afterwards is dropped.
type Block struct {
	b        *ResultBuilder
	language string
	began    time.Time

	mu             sync.Mutex
	stdout, stderr strings.Builder
	text           []string
	files          []codeexec.File
	left           []codeexec.LeftFile
	truncated      bool
	begun          map[string]string // by stream: of a character, not told yet
	ended          bool
}

// Begin begins the next block.
func (b *ResultBuilder) Begin(language string) *Block {
	if b.left == nil {
		b.left = &fileBudget{maxResultFiles, maxResultBytes}
	}
	return &Block{b: b, language: codeexec.NormalizeLanguage(language), began: time.Now(), begun: map[string]string{}}
}

// write appends to the output, as far as there is room, and returns what it kept.
func (b *ResultBuilder) write(s string) (kept string) {
	room := cmp.Or(b.MaxOutput, cubby.DefaultMaxOutput) - b.output.Len()
	if len(s) > room {
		for room > 0 && !utf8.RuneStart(s[room]) {
			room--
		}
		s = s[:max(room, 0)]
	}
	b.output.WriteString(s)
	return s
}

// line appends text that begins and ends a line.
func (b *ResultBuilder) line(s string) bool {
	if n := b.output.Len(); n > 0 && b.output.String()[n-1] != '\n' {
		s = "\n" + s
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return len(b.write(s)) == len(s)
}

// Streams, as OnOutput names them.
const (
	streamStdout = "stdout"
	streamStderr = "stderr"
)

func (k *Block) print(stream, s string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return // by a program that was given up
	}
	to := &k.stdout
	if stream == streamStderr {
		to = &k.stderr
	}
	if room := cmp.Or(k.b.MaxOutput, cubby.DefaultMaxOutput) - to.Len(); len(s) > room {
		to.WriteString(strings.ToValidUTF8(s[:max(room, 0)], ""))
		k.truncated = true
	} else {
		to.WriteString(s)
	}
	kept := k.b.write(s)
	k.truncated = k.truncated || len(kept) < len(s)
	k.tell(stream, kept, false)
}

// tell passes on what was kept of a stream, in whole characters. The last of a
// stream may be less than one.
func (k *Block) tell(stream, s string, last bool) {
	if k.b.OnOutput == nil {
		return
	}
	s = k.begun[stream] + s
	whole := len(s)
	if !last {
		whole -= clip.Incomplete(s)
	}
	k.begun[stream] = s[whole:]
	if whole > 0 {
		k.b.OnOutput(stream, strings.ToValidUTF8(s[:whole], "\uFFFD"))
	}
}

type blockWriter struct {
	k      *Block
	stream string
}

func (w blockWriter) Write(p []byte) (int, error) {
	w.k.print(w.stream, string(p))
	return len(p), nil
}

// Stdout takes what the code prints. It never fails.
func (k *Block) Stdout() io.Writer { return blockWriter{k, streamStdout} }

// Stderr takes what the code prints to stderr. It never fails.
func (k *Block) Stderr() io.Writer { return blockWriter{k, streamStderr} }

// Show takes what the code showed.
func (k *Block) Show(r cubby.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	files, left := filesOf(r, len(k.b.res.Blocks), len(k.files), k.b.left)
	k.files = append(k.files, files...)
	k.left = append(k.left, left...)
	all := len(left) == 0
	if text := textOf(r); text != "" {
		k.text = append(k.text, text)
		all = k.b.line(text) && all
	}
	k.truncated = k.truncated || !all
}

// Options make RunCode tell the block what the code says.
func (k *Block) Options() []cubby.RunOption {
	return []cubby.RunOption{
		cubby.OnStdout(func(s string) { k.print(streamStdout, s) }),
		cubby.OnStderr(func(s string) { k.print(streamStderr, s) }),
		cubby.OnResult(k.Show),
	}
}

// EndExecution ends a block that RunCode ran with Options.
//
// What the network refused is told behind the code's output.
func (k *Block) EndExecution(ex *cubby.Execution) {
	r := codeexec.BlockResult{
		ExitCode: ex.ExitCode, Error: errorOf(k.language, ex.Error), Duration: ex.Duration, TimedOut: ex.TimedOut,
		Truncated: ex.Truncated,
	}
	if e := r.Error; e != nil {
		r.Truncated = !k.say(cmp.Or(e.Traceback, e.Error())) || r.Truncated
		if r.ExitCode == 0 {
			r.ExitCode = 1
		}
	}
	for i, refused := range ex.Refused {
		if i < maxRefused {
			r.Truncated = !k.say("network: "+refused.Reason) || r.Truncated
		}
	}
	k.b.res.StateLost = k.b.res.StateLost || ex.StateLost
	k.mu.Lock()
	k.left = append(k.left, tooLarge(ex, len(k.b.res.Blocks))...)
	k.truncated = k.truncated || len(k.left) > 0
	k.mu.Unlock()
	limit := ex.Limit
	if ex.OOMKilled {
		limit = "memory"
	}
	k.end(r, limit)
}

// EndProgram ends a block that ran as a program, which wrote its errors to
// stderr itself.
func (k *Block) EndProgram(exitCode int, timedOut, truncated bool) {
	k.mu.Lock()
	stderr := k.stderr.String()
	k.mu.Unlock()
	r := codeexec.BlockResult{ExitCode: exitCode, Duration: time.Since(k.began), TimedOut: timedOut, Truncated: truncated}
	limit := ""
	if timedOut {
		r.ExitCode, limit = codeexec.ExitTimedOut, "time"
	} else if exitCode != 0 {
		r.Error = ParseError(k.language, stderr)
	}
	k.end(r, limit)
}

// EndUnsupported ends a block that did not run: the executor has other
// languages.
func (k *Block) EndUnsupported(have []string) {
	r := unsupported(k.language, have)
	k.say(r.Error.Error())
	k.end(r, "")
}

func (k *Block) say(s string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.line(s)
}

// end adds the block to the result.
func (k *Block) end(r codeexec.BlockResult, limit string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tell(streamStdout, "", true)
	k.tell(streamStderr, "", true)
	k.ended = true
	r.Language = k.language
	r.Stdout, r.Stderr = strings.ToValidUTF8(k.stdout.String(), "\uFFFD"), strings.ToValidUTF8(k.stderr.String(), "\uFFFD")
	r.Text = strings.Join(k.text, "\n")
	r.Truncated = r.Truncated || k.truncated
	res := &k.b.res
	res.Blocks = append(res.Blocks, r)
	res.OutputFiles = append(res.OutputFiles, k.files...)
	k.b.leave(k.left)
	res.Duration += r.Duration
	res.TimedOut = res.TimedOut || r.TimedOut
	res.Truncated = res.Truncated || r.Truncated
	if r.ExitCode != 0 && res.ExitCode == 0 {
		res.ExitCode = r.ExitCode
	}
	if res.Error == nil {
		res.Error = r.Error
	}
	// A bound that ended code outweighs one that cut its output.
	if limit != "" && (res.Limit == "" || res.Limit == "output") {
		res.Limit = limit
	} else if r.Truncated && res.Limit == "" {
		res.Limit = "output"
	}
}

// maxLeft bounds how many files a result names that it does not have.
const maxLeft = 100

// maxRefused bounds what is told of connections that a network refused.
const maxRefused = 3

func (b *ResultBuilder) leave(left []codeexec.LeftFile) {
	b.res.Left = append(b.res.Left, left[:min(len(left), maxLeft-len(b.res.Left))]...)
}

// AddFiles adds files that the code wrote, and those of them that are not there or
// not whole. all says that there is none of the latter, named or not.
func (b *ResultBuilder) AddFiles(files []codeexec.File, left []codeexec.LeftFile, all bool) {
	b.res.OutputFiles = append(b.res.OutputFiles, files...)
	b.leave(left)
	if !all {
		b.res.Truncated = true
		b.res.Limit = cmp.Or(b.res.Limit, "output")
	}
}

// Result returns what became of the blocks so far.
func (b *ResultBuilder) Result() codeexec.CodeExecutionResult {
	r := b.res
	r.Output = strings.ToValidUTF8(b.output.String(), "\uFFFD")
	r.Outcome = codeexec.OutcomeOK
	for _, block := range r.Blocks {
		if block.ExitCode != 0 || block.Error != nil {
			r.Outcome = codeexec.OutcomeFailed
		}
	}
	if r.TimedOut {
		r.Outcome = codeexec.OutcomeDeadlineExceeded
	}
	return r
}
