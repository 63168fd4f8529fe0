package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Question is what to answer.
type Question struct {
	Text string
	// Files are put into the working directory, for this question and those that
	// follow. Their names are relative paths.
	Files []codeexec.File
	// Images are shown to models that take pictures.
	Images []Image
	// Context is what to know beside the question, such as the descriptions of
	// package agent/data. It is data: it is fenced.
	Context []string
}

// Answer is the model's.
type Answer struct {
	Text string `json:"text"`
	// Files are what the code saved, and the figures it showed; of files of one
	// name the last.
	Files []codeexec.File `json:"files,omitempty"`
	Turns int             `json:"turns"` // replies of the model
	Runs  int             `json:"runs"`  // of code, and calls of tools
	Usage Usage           `json:"usage"`
	// Stopped is the bound that kept more code from running, or that ended the
	// work (then Ask's error is a *LimitError); empty if none did.
	Stopped Bound         `json:"stopped,omitempty"`
	Took    time.Duration `json:"duration"`
}

// Session is a conversation: messages here, variables and files in the sandbox,
// from question to question. It is safe for concurrent use; questions wait for
// each other.
type Session struct {
	a    *Agent
	id   string
	turn chan struct{} // held by the question that is being answered

	// Of who holds turn.
	messages []Message
	restored bool // and the model does not know yet
	place    *place
	runs     int
	closed   bool
}

// ID is the session's: the execution id under which the executor keeps its state.
func (s *Session) ID() string { return s.id }

// Messages returns a copy of the conversation so far.
func (s *Session) Messages() []Message {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return slices.Clone(s.messages)
}

// Restore begins the session with the conversation of an earlier one, as
// [Session.Messages] returned it, in the place of what was said in this one. The
// sandbox is not that one's: the model is told with the next question that variables and
// files are gone, but for those that come with it. Messages must end with the
// assistant, or be none; pictures in them become their names.
func (s *Session) Restore(messages []Message) error {
	if n := len(messages); n > 0 && messages[n-1].Role != RoleAssistant {
		return errors.New("agent: the conversation to restore does not end with the assistant")
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.closed {
		return ErrClosed
	}
	s.messages, s.restored = withoutImages(messages), len(messages) > 0
	return nil
}

// Close ends the session, after the question that is being answered. The sandbox
// is the executor's and stays.
func (s *Session) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed, s.messages, s.place = true, nil, &place{}
	return nil
}

// Ask answers a question. events (unless nil) is told what happens, in order and
// from one goroutine at a time; it must not call the session. When a bound of
// [Limits] or an error ends the work, the answer holds what there is: text that
// was written, files, counts. The session stays usable.
//
// Errors: *[LimitError]; *[ModelError]; a *cubby.Error when code cannot be run at
// all; the context's; [ErrClosed]; those of approver, audit log and fatal tools.
func (s *Session) Ask(ctx context.Context, q Question, events func(Event)) (*Answer, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.closed {
		return nil, ErrClosed
	}
	if strings.TrimSpace(q.Text) == "" {
		return nil, errors.New("agent: the question is empty")
	}
	for _, f := range q.Files {
		// A name that the executor refuses would be refused with every question.
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) || strings.IndexByte(f.Name, 0) >= 0 {
			return nil, fmt.Errorf("agent: the file name %q is no relative path below the working directory", f.Name)
		}
	}
	began := time.Now()
	w := &work{s: s, a: s.a, answer: &Answer{}, events: events, caller: ctx}
	if s.a.limits.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.a.limits.Time)
		defer cancel()
	}
	info := s.a.model.Info()
	ctx, span := s.a.observe.span(ctx, "agent.answer", attribute.String("agent.session", s.id), attribute.String("agent.model", info.Name),
		attribute.String("agent.mode", string(s.a.mode)), attribute.Int("agent.files", len(q.Files)))
	defer span.End()

	err := w.run(ctx, q)
	if err != nil && w.caller.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = w.stop(BoundTime, s.a.limits.Time.String())
	}
	w.settle()
	w.answer.Took = time.Since(began)
	w.answer.Files = w.files()
	outcome := "ok"
	if err != nil {
		var bound *LimitError
		outcome = "error"
		if errors.As(err, &bound) {
			outcome = "bound"
		}
	}
	fail(span, err, outcome)
	span.SetAttributes(attribute.Int("agent.turns", w.answer.Turns), attribute.Int("agent.runs", w.answer.Runs),
		attribute.Int("agent.tokens", w.answer.Usage.Total()), attribute.String("agent.stopped", string(w.answer.Stopped)))
	s.a.observe.answered(context.WithoutCancel(ctx), outcome, w.answer.Took)
	s.a.log.InfoContext(ctx, "question answered", "session", s.id, "outcome", outcome, "turns", w.answer.Turns, "runs", w.answer.Runs,
		"input_tokens", w.answer.Usage.Input, "output_tokens", w.answer.Usage.Output, "duration", w.answer.Took)
	if err != nil {
		return w.answer, err
	}
	w.emit(Event{Type: EventAnswer, Text: w.answer.Text, Files: w.answer.Files, Usage: &w.answer.Usage})
	return w.answer, nil
}

// work is the work on one question.
type work struct {
	s      *Session
	a      *Agent
	answer *Answer
	caller context.Context // without the bound of time

	mu     sync.Mutex // output comes from the executor's goroutines
	events func(Event)

	environment string // what the sandbox has, for the model

	messages []Message // of this question; the session's when they are whole
	reply    *Reply    // the last
	charged  bool      // its tokens are in the audit log
	failures int       // in a row
	lost     int       // times in a row that the executor could not work
	last     string    // code and error of the last failure
	made     map[string]codeexec.File
	order    []string // their names
	size     int      // in bytes, of all
}

// maxFiles bounds the files of an answer together, in bytes.
const maxFiles = 256 << 20

func (w *work) emit(e Event) {
	if w.events == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Time, e.Turn = time.Now(), max(e.Turn, w.answer.Turns)
	w.events(e)
}

func (w *work) notice(format string, args ...any) {
	w.emit(Event{Type: EventNotice, Text: fmt.Sprintf(format, args...)})
}

// stop records a bound.
func (w *work) stop(b Bound, limit string) error {
	w.answer.Stopped = b
	return &LimitError{Bound: b, Limit: limit}
}

// keep takes files that code made.
func (w *work) keep(files []codeexec.File) {
	if w.made == nil {
		w.made = map[string]codeexec.File{}
	}
	for _, f := range files {
		old, known := w.made[f.Name]
		if w.size-len(old.Content)+len(f.Content) > maxFiles {
			w.notice("the file %s is left out: the files of this answer are more than %d MiB", oneLine(f.Name), maxFiles>>20)
			continue
		}
		if !known {
			w.order = append(w.order, f.Name)
		}
		w.size += len(f.Content) - len(old.Content)
		w.made[f.Name] = f
	}
}

func (w *work) files() []codeexec.File {
	var all []codeexec.File
	for _, name := range w.order {
		all = append(all, w.made[name])
	}
	return all
}

// restoredNote begins the first question of a session that was restored.
const restoredNote = "[The conversation goes on in a new sandbox: variables, imports and files of the runs so far are gone, but for files " +
	"that are listed here. Make again what you need of them.]"

// ask is the question as the model reads it.
func (w *work) ask(q Question) Message {
	var b strings.Builder
	if w.s.restored {
		b.WriteString(restoredNote + "\n\n")
	}
	b.WriteString(q.Text)
	if len(q.Files) > 0 {
		b.WriteString("\n\nFiles in the working directory:\n")
		for _, f := range q.Files {
			fmt.Fprintf(&b, "- %s (%d bytes)\n", oneLine(f.Name), cmp.Or(f.SizeBytes, int64(len(f.Content))))
		}
	}
	for _, text := range q.Context {
		b.WriteString("\n" + fenced("data", text) + "\n")
	}
	m := UserText(strings.TrimRight(b.String(), "\n"))
	if w.a.model.Info().Images {
		for _, i := range q.Images {
			m.Parts = append(m.Parts, i)
		}
	}
	return m
}

// settle hands the messages over to the session, such that the conversation can
// go on: it ends with the assistant, and every call of a tool is answered.
func (w *work) settle() {
	if w.answer.Turns == 0 {
		return // nothing was said to it
	}
	last := w.messages[len(w.messages)-1]
	if last.Role == RoleAssistant {
		if results := unanswered(last, "not run: the work was stopped"); len(results) > 0 {
			w.messages = append(w.messages, Message{RoleUser, results})
			last = w.messages[len(w.messages)-1]
		}
	}
	if last.Role == RoleUser {
		w.messages = append(w.messages, Message{RoleAssistant, []Part{Text{"[The work on this was stopped before an answer.]"}}})
	}
	w.s.restored = false // it was said
	// Pictures of old questions cost much and tell little.
	w.s.messages = append(withoutImages(w.s.messages), w.messages...)
}

func unanswered(m Message, text string) []Part {
	var results []Part
	for _, p := range m.Parts {
		if c, ok := p.(ToolCall); ok {
			results = append(results, ToolResult{CallID: c.ID, Name: c.Name, Parts: []Part{Text{text}}, IsError: true})
		}
	}
	return results
}

// Bounds of the pictures of a request: endpoints refuse more, and each is dear.
const (
	requestImages     = 8
	requestImageBytes = 16 << 20
)

// fewImages leaves the last pictures in a conversation; the others become their
// names.
func fewImages(messages []Message) []Message {
	left, room := requestImages, requestImageBytes
	out := slices.Clone(messages)
	for i := len(out) - 1; i >= 0; i-- {
		out[i].Parts = lastImages(out[i].Parts, &left, &room)
	}
	return out
}

func lastImages(parts []Part, left, room *int) []Part {
	out := slices.Clone(parts)
	for i := len(out) - 1; i >= 0; i-- {
		switch p := out[i].(type) {
		case Image:
			if *left--; *left < 0 || len(p.Data) > *room {
				out[i] = Text{"[Image: " + oneLine(p.Name) + "]"}
				continue
			}
			*room -= len(p.Data)
		case ToolResult:
			p.Parts = lastImages(p.Parts, left, room)
			out[i] = p
		}
	}
	return out
}

func withoutImages(messages []Message) []Message {
	left, room := 0, 0
	out := slices.Clone(messages)
	for i := range out {
		out[i].Parts = lastImages(out[i].Parts, &left, &room)
	}
	return out
}

// oneLine makes a file's name safe to show to a model.
func oneLine(s string) string {
	s = clip.Head(codeexec.CleanText(s), 300)
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '[' || r == ']' || r == '`' {
			return '_'
		}
		return r
	}, s)
}
