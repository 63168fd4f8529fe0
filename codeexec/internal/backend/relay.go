package backend

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// RelayOutput calls execute in a goroutine of its own, with an OnOutput that
// never waits, and passes what that is told on to in.OnOutput in the caller's
// goroutine. It returns what execute does, when all is passed on. So nothing that
// execute holds (a turn, a kernel) is held while in.OnOutput runs. A result beside
// an error is one of failure, also if nothing ran. It comes first of all.
func RelayOutput(
	ctx context.Context, in codeexec.CodeExecutionInput,
	execute func(context.Context, codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error),
) (codeexec.CodeExecutionResult, error) {
	tell := in.OnOutput
	if tell == nil {
		return unlessFailed(execute(ctx, in))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the execution when tell panics
	queue := outputQueue{more: make(chan struct{}, 1)}
	in.OnOutput = queue.put
	var (
		r     codeexec.CodeExecutionResult
		err   error
		ended = make(chan struct{})
	)
	go func() {
		defer close(ended)
		r, err = execute(ctx, in)
	}()
	for {
		select {
		case <-queue.more:
			queue.tell(tell)
		case <-ended:
			queue.tell(tell)
			return unlessFailed(r, err)
		}
	}
}

// unlessFailed has no result beside an error say that all went well.
func unlessFailed(r codeexec.CodeExecutionResult, err error) (codeexec.CodeExecutionResult, error) {
	if err != nil {
		if r.Outcome == codeexec.OutcomeOK || r.Outcome == "" {
			r.Outcome = codeexec.OutcomeFailed
		}
		r.ExitCode = cmp.Or(r.ExitCode, 1)
	}
	return r, err
}

// outputQueue is what was not passed on yet. The bound of the kept output bounds
// it.
type outputQueue struct {
	more chan struct{}

	mu     sync.Mutex
	pieces []*outputPiece
}

type outputPiece struct {
	stream string
	text   strings.Builder
}

func (q *outputQueue) put(stream, text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.pieces); n == 0 || q.pieces[n-1].stream != stream {
		q.pieces = append(q.pieces, &outputPiece{stream: stream})
	}
	q.pieces[len(q.pieces)-1].text.WriteString(text)
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *outputQueue) tell(tell func(stream, text string)) {
	q.mu.Lock()
	pieces := q.pieces
	q.pieces = nil
	q.mu.Unlock()
	for _, p := range pieces {
		tell(p.stream, p.text.String())
	}
}
