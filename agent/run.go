package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// Bounds of the pictures of one run that a model is shown.
const (
	maxImages     = 6
	maxImageBytes = 4 << 20 // each; providers take about 5 MB
)

// collected is what comes back of the working directory: everything but what
// begins with a dot.
var collected = []string{"[!.]*", "[!.]*/**"}

// identifier is what an error's type may be in a log.
var identifier = regexp.MustCompile(`^[A-Za-z_][\w.]{0,99}$`)

// shown is how executors name figures, in each run alike.
var shown = regexp.MustCompile(`^result_\d+_\d+\.\w+$`)

// observation is what a model is told of a run.
type observation struct {
	text   string
	images []Image
	ok     bool
}

// record begins the line of the audit log.
func (w *work) record(kind, language, code string) AuditRecord {
	r := AuditRecord{
		Session: w.s.id, Turn: w.answer.Turns, Kind: kind, Policy: "none", Approval: "none", Model: w.a.model.Info().Name,
	}
	if code != "" {
		sum := sha256.Sum256([]byte(code))
		r.Language, r.CodeSHA256, r.CodeChars, r.Code = "other", hex.EncodeToString(sum[:]), utf8.RuneCountInString(code), code
		if slices.Contains(w.a.executor.Languages(), codeexec.NormalizeLanguage(language)) { // else it is the model's word
			r.Language = codeexec.NormalizeLanguage(language)
		}
	}
	if w.reply != nil && !w.charged {
		w.charged = true
		r.InputTokens, r.OutputTokens = w.reply.Usage.Input, w.reply.Usage.Output
	}
	return r
}

func (w *work) log(ctx context.Context, r AuditRecord) error {
	r.Time = time.Now().UTC()
	w.a.observe.ran(ctx, r.Kind, r.Outcome)
	w.a.log.InfoContext(ctx, "run", "session", r.Session, "kind", r.Kind, "tool", r.Tool, "language", r.Language, "code_sha256", r.CodeSHA256,
		"policy", r.Policy, "outcome", r.Outcome, "exit_code", r.ExitCode, "seconds", r.Seconds)
	return w.a.audit.write(r)
}

// gate decides whether code may run, by itself or by a call of a tool; refusal is
// what the model is told if not.
func (w *work) gate(ctx context.Context, b codeexec.CodeBlock, c ToolCall, r *AuditRecord) (refusal string, err error) {
	tool := c.Name
	e := Event{Type: EventCode, Run: w.s.runs + 1, Language: codeexec.NormalizeLanguage(b.Language), Code: b.Code, Decision: "allow", Tool: tool}
	defer func() {
		if err == nil {
			if refusal != "" {
				e.Decision, e.Text = "refused", refusal
			}
			w.emit(e)
		}
	}()
	if strings.IndexByte(b.Code, 0) >= 0 || !utf8.ValidString(b.Code) {
		return "The code was not run: it holds NUL characters, or is no UTF-8.", nil
	}
	var report validate.Report
	if w.a.validator != nil {
		code := validate.Code{Language: b.Language, Source: b.Code}
		if report, err = w.a.validator.Validate(ctx, code); err != nil && ctx.Err() == nil {
			// It may have looked in a sandbox that had ended; there is a new one now.
			report, err = w.a.validator.Validate(ctx, code)
		}
		if err != nil {
			return "", fmt.Errorf("agent: the code could not be checked, so it was not run: %w", err)
		}
		r.Policy = string(report.Decision)
		e.Findings = slices.Concat(report.Errors, report.Findings)
		for _, f := range e.Findings {
			r.Rules = append(r.Rules, f.Rule)
		}
		if report.Decision == validate.Deny || !report.Valid {
			return "The code was not run:\n" + listing(report), nil
		}
	}
	required := report.Decision == validate.Review
	if w.a.approve == nil {
		if required {
			return "The code was not run: a person would have to approve it, and there is none.\n" + listing(report), nil
		}
		return "", nil
	}
	answer, err := w.a.approve(ctx, ApprovalRequest{
		Session: w.s.id, Tool: tool, Arguments: c.Arguments, Language: e.Language, Code: b.Code, Report: report, Required: required,
	})
	if err != nil {
		return "", fmt.Errorf("agent: approval: %w", err)
	}
	r.Approval = "refused"
	if !answer.Approved {
		refusal = "The code was not run: the user did not approve it."
		if answer.Reason != "" {
			refusal += " Reason: " + answer.Reason
		}
		return refusal, nil
	}
	r.Approval, e.Decision = "approved", "approved"
	return "", nil
}

// listing is what was found, for the model.
func listing(r validate.Report) string {
	var b strings.Builder
	for _, f := range slices.Concat(r.Errors, r.Findings) {
		if f.Decision == validate.Allow && r.Decision != validate.Allow {
			continue
		}
		b.WriteString("- ")
		if f.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", f.Line)
		}
		fmt.Fprintf(&b, "%s (%s)", f.Message, f.Rule)
		if f.Remedy != "" {
			fmt.Fprintf(&b, ". Instead: %s", f.Remedy)
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}

// execute runs a block, if it may, and tells what came of it. Its error ends the
// work.
func (w *work) execute(ctx context.Context, b codeexec.CodeBlock) (observation, error) {
	record := w.record("code", b.Language, b.Code)
	refusal, err := w.gate(ctx, b, ToolCall{}, &record)
	if err != nil {
		return observation{}, err
	}
	if refusal != "" {
		record.Outcome = "refused"
		w.failed(b.Code, refusal)
		return observation{text: refusal}, w.log(ctx, record)
	}
	w.count()
	w.s.runs++
	run := w.s.runs
	record.Run = run
	ctx, span := w.a.observe.span(ctx, "agent.run", attribute.String("agent.language", record.Language), attribute.String("agent.code.sha256", record.CodeSHA256))
	defer span.End()
	_ = w.look(ctx) // if that fails, so does the run
	put := w.s.place.waiting()
	began := time.Now()
	result, err := w.a.executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		CodeBlocks: []codeexec.CodeBlock{b}, InputFiles: put.files, ExecutionID: w.s.id, Collect: collected,
		OnOutput: func(stream, text string) { w.emit(Event{Type: EventOutput, Run: run, Stream: stream, Text: text}) },
	})
	record.Seconds = time.Since(began).Seconds()
	record.OutputBytes, record.Files, record.Truncated, record.ExitCode = len(result.Output),
		len(result.OutputFiles), result.Truncated, result.ExitCode
	record.Outcome = string(result.Outcome)
	if result.Error != nil {
		record.ErrorType = "other" // code chooses its name
		if identifier.MatchString(result.Error.Type) {
			record.ErrorType = result.Error.Type
		}
	}
	if err != nil {
		record.Outcome = "error"
		fail(span, err, cubby.CodeOf(err).String())
		return w.unable(ctx, b, run, err, w.log(ctx, record))
	}
	w.lost = 0
	w.s.place.saw(result, put)
	span.SetAttributes(attribute.String("agent.outcome", record.Outcome), attribute.Int("agent.exit_code", result.ExitCode))
	if err := w.log(ctx, record); err != nil {
		return observation{}, err
	}
	return w.seen(run, b, result), nil
}

// unable is for what the executor could not do: once the model is told, for the
// sandbox may be a new one; then it ends the work.
func (w *work) unable(ctx context.Context, b codeexec.CodeBlock, run int, err, logged error) (observation, error) {
	if ctx.Err() != nil || isContext(err) && w.caller.Err() != nil {
		return observation{}, errors.Join(context.Cause(ctx), logged)
	}
	if logged != nil {
		return observation{}, logged
	}
	if cubby.CodeOf(err) == cubby.CodeInvalidArgument {
		w.s.place.forget() // which it may be about: the next question goes on without
		return observation{}, fmt.Errorf("agent: run code: %w", err)
	}
	if w.lost++; w.lost > 1 {
		return observation{}, fmt.Errorf("agent: run code: %w", err)
	}
	w.notice("the sandbox could not run the code: %v", err)
	text := w.whatIsLeft(ctx)
	w.emit(Event{Type: EventResult, Run: run, Text: text, IsError: true})
	w.failed(b.Code, text)
	return observation{text: text}, nil
}

// whatIsLeft tells of a run that the executor could not do to its end.
func (w *work) whatIsLeft(ctx context.Context) string {
	const unknown = "The sandbox could not run this code, and it is not known how much of it was done. "
	lasts, known := w.s.place.lasting()
	if known && !lasts {
		return unknown + "If it may have been the code's doing (memory, time), do it in smaller steps."
	}
	if err := w.inquire(ctx); err != nil {
		return unknown + "If a new sandbox takes its place, you will be told what is gone."
	}
	n := w.s.place.tell()
	switch {
	case n.files:
		return "The sandbox was lost before this code was done. A new one takes its place: variables and the files that code wrote are gone, " +
			"the user's files are back. If it may have been the code's doing (memory, time), do it in smaller steps."
	case n.variables:
		return unknown + "Variables and imports of earlier runs are gone; files are there."
	}
	return unknown + "Variables and files are there, as far as the code did not change them." + n.text()
}

// seen turns a result into what the model is told, and keeps its files.
func (w *work) seen(run int, b codeexec.CodeBlock, result codeexec.CodeExecutionResult) observation {
	for i := range result.OutputFiles {
		f := &result.OutputFiles[i]
		if shown.MatchString(f.Name) {
			f.Name = fmt.Sprintf("figure-%d-%d%s", run, i+1, path.Ext(f.Name))
		}
	}
	whole := fmt.Sprintf("output-%d.txt", run)
	rendered := result.ToolOutput(codeexec.RenderOptions{MaxChars: w.a.limits.OutputChars, KeptAs: "the file " + whole})
	for i := range rendered.Files {
		f := &rendered.Files[i]
		if f.Name == codeexec.WholeOutputName && i >= len(result.OutputFiles) {
			f.Name = whole
			w.s.place.leave(*f) // where the model is told that it is
		}
	}
	w.keep(rendered.Files)
	o := observation{text: rendered.Text + w.told(), ok: result.Outcome == codeexec.OutcomeOK || result.Outcome == ""}
	w.emit(Event{Type: EventResult, Run: run, Result: &result, Files: rendered.Files, IsError: !o.ok})
	if w.a.model.Info().Images {
		o.images = images(result.OutputFiles)
	}
	if o.ok {
		w.succeeded()
		return o
	}
	what := result.Output
	if result.Error != nil {
		what = result.Error.Error()
	}
	w.failed(b.Code, what)
	return o
}

// images are the pictures among files that a model can look at, as their first
// bytes say.
func images(files []codeexec.File) []Image {
	var all []Image
	for _, f := range files {
		if f.Truncated || len(f.Content) > maxImageBytes || len(all) == maxImages {
			continue
		}
		switch mime := http.DetectContentType(f.Content); mime {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			all = append(all, Image{Name: oneLine(f.Name), MIMEType: mime, Data: f.Content})
		}
	}
	return all
}

// callTool calls one of the caller's tools, or one that was kept.
func (w *work) callTool(ctx context.Context, c ToolCall) (parts []Part, files []codeexec.File, ok bool, err error) {
	say := func(text string) []Part { return []Part{Text{w.cut(text)}} }
	var tool Tool
	var names []string
	for _, t := range w.tools() {
		names = append(names, t.Spec().Name)
		if t.Spec().Name == c.Name {
			tool = t
		}
	}
	if tool == nil {
		text := fmt.Sprintf("There is no tool %q. There are: %s", oneLine(c.Name), strings.Join(names, ", "))
		w.failed(c.Name+string(c.Arguments), text)
		return say(text), nil, false, nil
	}
	var b codeexec.CodeBlock
	runs := false
	if code, isCode := tool.(CodeTool); isCode {
		b, runs = code.Code(c.Arguments)
	}
	record := w.record("tool", b.Language, b.Code)
	record.Tool = c.Name
	sum := sha256.Sum256(c.Arguments)
	record.ArgumentsSHA256, record.Arguments = hex.EncodeToString(sum[:]), string(c.Arguments)
	if runs {
		refusal, err := w.gate(ctx, b, c, &record)
		if err != nil {
			return nil, nil, false, err
		}
		if refusal != "" {
			record.Outcome = "refused"
			w.failed(b.Code, refusal)
			return say(refusal), nil, false, w.log(ctx, record)
		}
		if err := w.stage(ctx); err != nil {
			return nil, nil, false, err
		}
	}
	w.count()
	ctx, span := w.a.observe.span(ctx, "agent.tool", attribute.String("agent.tool", c.Name))
	defer span.End()
	began := time.Now()
	out, err := safeCall(ctx, tool, c)
	w.rename(&out)
	w.keep(out.Files)
	record.Seconds, record.OutputBytes, record.Outcome = time.Since(began).Seconds(), len(out.Text), "ok"
	record.Files = len(out.Files)
	if err != nil {
		record.Outcome = "failed"
	}
	if logged := w.log(ctx, record); logged != nil {
		return nil, nil, false, logged
	}
	fail(span, err, "failed")
	news := ""
	if runs {
		news = w.told()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, false, context.Cause(ctx)
	case errors.Is(err, ErrFatal):
		return nil, nil, false, fmt.Errorf("agent: tool %s: %w", c.Name, err)
	case err != nil:
		w.failed(c.Name+string(c.Arguments), err.Error())
		return say("Error: " + err.Error() + news), nil, false, nil
	}
	w.succeeded()
	parts = say(codeexec.CleanText(out.Text) + news)
	if w.a.model.Info().Images {
		for _, i := range out.Images {
			parts = append(parts, i)
		}
	}
	return parts, out.Files, true, nil
}

// rename gives a tool's figures names of their own: each call names them alike.
func (w *work) rename(out *ToolOutput) {
	for i := range out.Files {
		f := &out.Files[i]
		if !shown.MatchString(f.Name) {
			continue
		}
		name := fmt.Sprintf("figure-tool-%d-%d%s", w.answer.Runs, i+1, path.Ext(f.Name))
		out.Text = strings.ReplaceAll(out.Text, f.Name, name)
		f.Name = name
	}
}

// stage puts files in that wait for the next run, for a tool that is one.
func (w *work) stage(ctx context.Context) error {
	if err := w.look(ctx); err != nil && ctx.Err() == nil {
		// The sandbox had ended; there is a new one now.
		if err = w.look(ctx); err != nil {
			return fmt.Errorf("agent: find what is there: %w", err)
		}
	}
	put := w.s.place.waiting()
	if lasts, known := w.s.place.lasting(); len(put.files) == 0 || known && !lasts {
		return nil
	}
	r, err := w.a.executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{InputFiles: put.files, ExecutionID: w.s.id})
	if err != nil {
		return fmt.Errorf("agent: put files in: %w", err)
	}
	w.s.place.saw(r, put)
	return nil
}

// safeCall calls a tool, whose panic is an error. One that does not heed its
// context is left behind.
func safeCall(ctx context.Context, t Tool, c ToolCall) (ToolOutput, error) {
	type result struct {
		out ToolOutput
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("the tool panicked: %v", p)
			}
			done <- r
		}()
		r.out, r.err = t.Call(ctx, c.Arguments)
	}()
	select {
	case r := <-done:
		return r.out, r.err
	case <-ctx.Done():
		return ToolOutput{}, ctx.Err()
	}
}

// cut bounds what a tool says to what a model is shown.
func (w *work) cut(text string) string {
	most := w.a.limits.OutputChars
	if most < 0 || utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return string(runes[:most-most/2]) + fmt.Sprintf("\n[... %d characters are left out here ...]\n", len(runes)-most) + string(runes[len(runes)-most/2:])
}
