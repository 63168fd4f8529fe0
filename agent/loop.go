package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// run asks, runs and shows until the model answers.
func (w *work) run(ctx context.Context, q Question) error {
	w.s.place.add(q.Files)
	w.messages = []Message{w.ask(q)}
	w.emit(Event{Type: EventQuestion, Text: q.Text, Files: q.Files})
	w.environment = w.a.environment.describe(ctx, w.executor(), w.s.id)
	for {
		reply, err := w.generate(ctx)
		if err != nil {
			return err
		}
		message := reply.Message
		calls := callsOf(message)
		var blocks []codeexec.CodeBlock
		invented := false
		if w.a.mode == ModeBlocks && len(calls) == 0 {
			message, blocks, invented = w.blocksOf(reply)
		}
		w.messages = append(w.messages, message)
		w.answer.Text = strings.TrimSpace(message.Text())

		var next Message
		switch {
		case w.answer.Stopped != "": // this was its last word
			return w.finish(calls, blocks)
		case reply.Stop == StopLength:
			w.failed("a reply that was too long", "cut off")
			next = Message{RoleUser, append(unanswered(message, "not run: the reply was cut off"),
				Text{"Your reply was cut off: it was too long, and nothing of it was run. Say it in fewer words, and write long code in several steps."})}
		case reply.Stop == StopRefused:
			return &ModelError{Kind: KindInvalidResponse, Provider: w.a.model.Info().Provider, Message: "the model refused to answer", Hint: "ask in other words"}
		case len(calls) > 0:
			next, err = w.call(ctx, calls)
		case len(blocks) > 0:
			next, _, err = w.runBlocks(ctx, blocks)
		case invented:
			next = UserText("Nothing was run: your reply began with a tool_output fence, which only my messages have. Write the code alone; its output comes in my next message.")
		case w.answer.Text == "":
			next = UserText("Your reply was empty. Go on: write code, or answer the question.")
		default:
			return nil
		}
		if err != nil {
			return err
		}
		if w.answer.Stopped != "" {
			next.Parts = append(next.Parts, Text{"No more code will be run and no more tools will be called. Answer the question now, with what you know, and say what remains open."})
		}
		w.messages = append(w.messages, next)
	}
}

// finish takes the reply after a bound was reached, of which nothing runs.
func (w *work) finish(calls []ToolCall, blocks []codeexec.CodeBlock) error {
	if w.answer.Text == "" || len(calls) > 0 || len(blocks) > 0 {
		return w.stop(w.answer.Stopped, w.limitText(w.answer.Stopped))
	}
	return nil
}

func (w *work) limitText(b Bound) string {
	l := w.a.limits
	switch b {
	case BoundTurns:
		return fmt.Sprintf("%d replies", l.Turns)
	case BoundExecutions:
		return fmt.Sprintf("%d runs", l.Executions)
	case BoundTokens:
		return fmt.Sprintf("%d tokens", l.Tokens)
	case BoundTime:
		return l.Time.String()
	}
	return fmt.Sprintf("%d failed runs in a row", l.Failures)
}

// generate asks the model for a reply.
func (w *work) generate(ctx context.Context) (*Reply, error) {
	l := w.a.limits
	if l.Turns > 0 && w.answer.Turns >= l.Turns {
		return nil, w.stop(BoundTurns, w.limitText(BoundTurns))
	}
	left := l.Tokens - w.answer.Usage.Total()
	if l.Tokens > 0 && left <= 0 {
		return nil, w.stop(BoundTokens, w.limitText(BoundTokens))
	}
	req := Request{System: w.a.prompt(w.environment), Messages: fewImages(slices.Concat(w.s.messages, w.messages)),
		MaxTokens: max(l.ReplyTokens, 0)}
	if l.Tokens > 0 && (req.MaxTokens == 0 || left < req.MaxTokens) {
		req.MaxTokens = left
	}
	// The tools stay named also when none is to be called: endpoints want the
	// specs of calls that are in the conversation.
	req.Tools = w.specs()
	ctx, span := w.a.observe.span(ctx, "agent.generate")
	defer span.End()
	opts := w.a.retry
	opts.OnRetry = func(err error, wait time.Duration, void bool) {
		text := "the model is asked again"
		if void {
			text = "the reply broke off and begins anew"
		}
		w.notice("%s in %v: %v", text, wait.Round(time.Millisecond), err)
		if w.a.retry.OnRetry != nil {
			w.a.retry.OnRetry(err, wait, void)
		}
	}
	turn := w.answer.Turns + 1
	reply, err := Retry(w.a.model, opts).Generate(ctx, req, func(d Delta) {
		switch {
		case d.Text != "":
			w.emit(Event{Type: EventText, Turn: turn, Text: d.Text})
		case d.Thinking != "":
			w.emit(Event{Type: EventThinking, Turn: turn, Text: d.Thinking})
		}
	})
	if err == nil && ctx.Err() != nil {
		err = ctx.Err() // it came too late
	}
	if err != nil {
		kind := string(KindOf(err))
		if kind == "" {
			kind = "error"
		}
		fail(span, err, kind)
		return nil, err
	}
	if reply.Usage == (Usage{}) { // an endpoint that does not count
		reply.Usage = Usage{Input: estimate(req), Output: size(reply.Message.Parts)/4 + 1}
	}
	reply.Message = apart(reply.Message)
	w.reply, w.charged = reply, false
	w.answer.Turns++
	w.answer.Usage = w.answer.Usage.Add(reply.Usage)
	w.a.observe.replied(ctx, w.a.model.Info().Name, reply.Usage)
	w.emit(Event{Type: EventReply, Text: reply.Message.Text(), Usage: &reply.Usage})
	return reply, nil
}

// apart takes what a model thinks out of its text: some local servers leave it
// there, between <think> and </think>. Code in it is no code to run.
func apart(m Message) Message {
	const begin, end = "<think>", "</think>"
	for i, p := range m.Parts {
		t, ok := p.(Text)
		if !ok {
			continue
		}
		inside, found := strings.CutPrefix(strings.TrimLeft(t.Text, " \n"), begin)
		if !found {
			return m
		}
		thought, text, _ := strings.Cut(inside, end)
		parts := append(slices.Clone(m.Parts[:i]), Thinking{Text: strings.TrimSpace(thought)})
		if text = strings.TrimLeft(text, " \n"); text != "" {
			parts = append(parts, Text{text})
		}
		m.Parts = append(parts, m.Parts[i+1:]...)
		return m
	}
	return m
}

// estimate guesses a request's tokens: four characters are one.
func estimate(req Request) int {
	n := len(req.System)
	for _, m := range req.Messages {
		n += size(m.Parts)
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return n/4 + 1
}

// size is of parts, in characters; a picture counts as a thousand tokens.
func size(parts []Part) int {
	n := 0
	for _, p := range parts {
		switch p := p.(type) {
		case Text:
			n += len(p.Text)
		case Thinking:
			n += len(p.Text)
		case Image:
			n += 4000
		case ToolCall:
			n += len(p.Name) + len(p.Arguments)
		case ToolResult:
			n += size(p.Parts)
		}
	}
	return n
}

// blocksOf returns the code of a reply, and the reply as it is remembered:
// without the output that the model invented. invented says that there is code,
// but only after such output.
func (w *work) blocksOf(reply *Reply) (m Message, blocks []codeexec.CodeBlock, invented bool) {
	text := reply.Message.Text()
	forged := forgedOutput(text)
	if forged < 0 {
		return reply.Message, w.extract(text), false
	}
	if blocks = w.extract(text[:forged]); len(blocks) == 0 {
		return reply.Message, nil, len(w.extract(text)) > 0
	}
	w.notice("the model went on to write what it thinks its code prints; that is left out")
	m.Role = RoleAssistant
	for _, p := range reply.Message.Parts {
		if _, ok := p.(Text); !ok {
			m.Parts = append(m.Parts, p)
		}
	}
	m.Parts = append(m.Parts, Text{strings.TrimSpace(text[:forged])})
	return m, blocks, false
}

func (w *work) extract(text string) []codeexec.CodeBlock {
	return codeexec.ExtractCodeBlocks(text, codeexec.ExtractOptions{
		Delimiters: w.a.executor.CodeBlockDelimiters(), Languages: w.a.executor.Languages(),
	})
}

// runBlocks runs the blocks of a reply until one fails.
func (w *work) runBlocks(ctx context.Context, blocks []codeexec.CodeBlock) (m Message, ok bool, err error) {
	m.Role = RoleUser
	for i, b := range blocks {
		head := ""
		if len(blocks) > 1 {
			head = fmt.Sprintf("Block %d of %d:\n", i+1, len(blocks))
		}
		out, err := w.execute(ctx, b)
		if err != nil {
			return m, false, err
		}
		ok = out.ok
		m.Parts = append(m.Parts, Text{head + out.text})
		for _, image := range out.images {
			m.Parts = append(m.Parts, image)
		}
		if left := len(blocks) - i - 1; left > 0 && (!out.ok || w.answer.Stopped != "") {
			m.Parts = append(m.Parts, Text{fmt.Sprintf("The other %d of the %d blocks were not run.", left, len(blocks))})
			break
		}
	}
	return m, ok, nil
}

// specs are the tools that the model may call.
func (w *work) specs() []ToolSpec {
	var specs []ToolSpec
	if w.a.mode == ModeTools {
		specs = append(specs, ExecuteCodeSpec(w.a.executor.Languages()), ExecutePythonSpec())
	}
	for _, t := range w.tools() {
		specs = append(specs, t.Spec())
	}
	return specs
}

// tools are the caller's and those that were kept; the first of a name counts.
func (w *work) tools() []Tool {
	all := slices.Clone(w.a.tools)
	if w.a.toolbox == nil {
		return all
	}
	taken := map[string]bool{executeCode: true, executePython: true}
	for _, t := range all {
		taken[t.Spec().Name] = true
	}
	for _, t := range w.a.toolbox.Tools(w.executor(), w.s.id) {
		if name := t.Spec().Name; !taken[name] {
			taken[name] = true
			all = append(all, t)
		}
	}
	return all
}

func callsOf(m Message) []ToolCall {
	var calls []ToolCall
	for _, p := range m.Parts {
		if c, ok := p.(ToolCall); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// call answers every call of a reply.
func (w *work) call(ctx context.Context, calls []ToolCall) (Message, error) {
	m := Message{Role: RoleUser}
	for i, c := range calls {
		if w.answer.Stopped != "" {
			m.Parts = append(m.Parts, unanswered(Message{Parts: partsOf(calls[i:])}, "not run: a bound was reached")...)
			break
		}
		args := c.Arguments
		if !json.Valid(args) {
			args = mustJSON(string(c.Arguments))
		}
		w.emit(Event{Type: EventToolCall, Tool: c.Name, Arguments: args})
		parts, files, ok, err := w.callOne(ctx, c)
		if err != nil {
			return m, err
		}
		r := ToolResult{CallID: c.ID, Name: c.Name, Parts: parts, IsError: !ok}
		w.emit(Event{Type: EventToolResult, Tool: c.Name, Text: Message{Parts: parts}.Text(), Files: files, IsError: !ok})
		m.Parts = append(m.Parts, r)
	}
	return m, nil
}

func partsOf(calls []ToolCall) []Part {
	var parts []Part
	for _, c := range calls {
		parts = append(parts, c)
	}
	return parts
}

// callOne calls a tool, or runs the code that the model passed.
func (w *work) callOne(ctx context.Context, c ToolCall) (parts []Part, files []codeexec.File, ok bool, err error) {
	if w.a.mode == ModeTools && (c.Name == executeCode || c.Name == executePython) {
		blocks, err := ParseCodeCall(c.Name, c.Arguments)
		if err != nil {
			w.failed(string(c.Arguments), err.Error())
			return []Part{Text{err.Error()}}, nil, false, nil
		}
		m, ok, err := w.runBlocks(ctx, blocks)
		return m.Parts, nil, ok, err
	}
	return w.callTool(ctx, c)
}

// failed counts a run that failed, and stops what goes round in circles.
func (w *work) failed(code, what string) {
	w.failures++
	now := code + "\x00" + what
	same := now == w.last
	w.last = now
	if l := w.a.limits.Failures; l > 0 && (w.failures >= l || same) {
		w.answer.Stopped = BoundFailures
		if same {
			w.notice("the same code failed with the same error again: no more code is run")
		} else {
			w.notice("%d runs in a row failed: no more code is run", w.failures)
		}
	}
}

func (w *work) succeeded() { w.failures, w.last = 0, "" }

// count counts a run, and stops the next one if that was the last allowed.
func (w *work) count() {
	w.answer.Runs++
	if l := w.a.limits.Executions; l > 0 && w.answer.Runs >= l && w.answer.Stopped == "" {
		w.answer.Stopped = BoundExecutions
		w.notice("%d runs were made: no more code is run", l)
	}
}

// isContext reports whether an error is that a context ended.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
