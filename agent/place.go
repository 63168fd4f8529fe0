package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// place is what is known of where a session's code runs: what lasts there, what
// was lost, and which files have to be put there. It is safe for concurrent use: a
// tool that was given up may still run in it.
type place struct {
	mu       sync.Mutex
	instance codeexec.Instance        // of the last result
	known    bool                     // there was a result
	files    map[string]codeexec.File // all that the user put in
	pending  []codeexec.File          // to put in with the next run
	put      int                      // how many were pending before these
	news     news
}

// batch are files to put in with a run, and how many that makes of all.
type batch struct {
	files []codeexec.File
	upTo  int
}

// news is what the model has to be told of a place.
type news struct {
	variables, files bool   // they were lost
	rules            string // what does not last, once
}

// What the model is told once where less lasts than it was promised.
const (
	nothingLasts = "Nothing lasts from run to run here: each run begins with the user's files alone, and must do all that it needs."
	onlyFiles    = "Variables do not last from run to run here, files do: each run must import, load and define what it needs."
)

// add takes files of a question.
func (p *place) add(files []codeexec.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[string]codeexec.File{}
	}
	p.pending = append(p.pending, files...)
	for _, f := range files {
		p.files[f.Name] = f
	}
}

// leave has a file put in with the next run, once.
func (p *place) leave(f codeexec.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, f)
}

// forget drops the files that wait: the executor does not take them.
func (p *place) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.pending {
		delete(p.files, f.Name)
	}
	p.put += len(p.pending)
	p.pending = nil
}

// waiting returns the files to put in with the next run.
func (p *place) waiting() batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return batch{slices.Clone(p.pending), p.put + len(p.pending)}
}

// lasting reports whether the executor has said that something lasts, and whether
// it has said anything yet.
func (p *place) lasting() (lasts, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.instance != codeexec.Instance{}, p.known
}

// saw takes note of a result, and of the files that were put in with it.
func (p *place) saw(r codeexec.CodeExecutionResult, put batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	there := map[string]bool{}
	for _, f := range put.files {
		there[f.Name] = true
	}
	if n := put.upTo - p.put; n > 0 {
		p.pending, p.put = p.pending[n:], put.upTo
	}
	variables, files := r.Instance.Losses(p.instance)
	// The first result has none before it; what it says of itself counts.
	files = files || r.FilesLost
	variables = variables || r.StateLost && r.Instance.Memory > 0
	p.news.variables, p.news.files = p.news.variables || variables, p.news.files || files
	if !p.known {
		switch {
		case r.Instance == codeexec.Instance{}:
			p.news.rules = nothingLasts
		case r.Instance.Memory == 0:
			p.news.rules = onlyFiles
		}
	}
	p.instance, p.known = r.Instance, true
	if r.Instance.Files == 0 {
		there = nil // they are gone already
		files = true
	}
	if files {
		p.restage(there)
	}
}

// restage puts the user's files in again with the next run, but for those that are
// there.
func (p *place) restage(there map[string]bool) {
	waits := map[string]bool{}
	for _, f := range p.pending {
		waits[f.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if !waits[name] && !there[name] {
			p.pending = append(p.pending, p.files[name])
		}
	}
}

// tell returns what the model was not told yet.
func (p *place) tell() news {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.news
	p.news = news{}
	return n
}

// text is for the model; empty without news.
func (n news) text() string {
	var b strings.Builder
	switch {
	case n.files && n.variables:
		b.WriteString("\nThe sandbox is a new one: variables and files that code wrote are gone. The user's files are back, at the latest for the next run.")
	case n.files:
		b.WriteString("\nThe sandbox is a new one: files that code wrote are gone. The user's files are back, at the latest for the next run.")
	case n.variables:
		b.WriteString("\nVariables and imports of earlier runs are gone; the files are as they were.")
	}
	if n.rules != "" {
		b.WriteString("\n" + n.rules)
	}
	return b.String()
}

// look asks which variables and files are there, where the executor says that
// some last, before something is to run that needs them. What is wrong there the
// run itself will tell.
func (w *work) look(ctx context.Context) error {
	if lasts, _ := w.s.place.lasting(); !lasts {
		return nil
	}
	return w.inquire(ctx)
}

// inquire asks which variables and files are there.
func (w *work) inquire(ctx context.Context) error {
	r, err := w.a.executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{ExecutionID: w.s.id})
	if err == nil {
		w.s.place.saw(r, batch{})
	}
	return err
}

// told returns what the model is to be told of the place, and tells the caller.
func (w *work) told() string {
	n := w.s.place.tell()
	switch {
	case n.files:
		w.notice("the sandbox is a new one: what code left in the one before is lost, the user's files are put in again")
	case n.variables:
		w.notice("the variables of earlier runs are lost")
	}
	return n.text()
}

// executor is the agent's, for what runs under the session's id beside the model's
// own code.
func (w *work) executor() codeexec.CodeExecutor { return inPlace{w.a.executor, w.s.id, w.s.place} }

// inPlace is an executor for a session: what runs there finds the user's files, and
// what is lost is noticed.
type inPlace struct {
	codeexec.CodeExecutor
	id    string
	place *place
}

// Unwrap implements [codeexec.Unwrapper].
func (e inPlace) Unwrap() codeexec.CodeExecutor { return e.CodeExecutor }

func (e inPlace) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	if in.ExecutionID != e.id {
		return e.CodeExecutor.ExecuteCode(ctx, in)
	}
	put := e.place.waiting()
	in.InputFiles = slices.Concat(put.files, in.InputFiles)
	r, err := e.CodeExecutor.ExecuteCode(ctx, in)
	if err == nil {
		e.place.saw(r, put)
	}
	return r, err
}
