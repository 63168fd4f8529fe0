package codeexectest

import (
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// instance is what results say of variables and files that are still there, and
// of those that are not.
func (s suite) instance(t *testing.T) {
	e := s.open(t)
	in := func(id, code string) codeexec.CodeExecutionInput {
		in := codeexec.CodeExecutionInput{ExecutionID: id}
		if code != "" {
			in.CodeBlocks = []codeexec.CodeBlock{block("python", code)}
		}
		return in
	}
	// same runs code that loses nothing.
	same := func(t *testing.T, before codeexec.CodeExecutionResult, in codeexec.CodeExecutionInput) codeexec.CodeExecutionResult {
		t.Helper()
		r := runIn(t, e, in)
		if r.Instance != before.Instance || r.StateLost || r.FilesLost {
			t.Errorf("nothing was lost: got %+v (%v, %v), before %+v", r.Instance, r.StateLost, r.FilesLost, before.Instance)
		}
		return r
	}
	first := runIn(t, e, in("a", "kept = 1"))
	if i := first.Instance; (i.Memory > 0) != s.traits.Stateful || (i.Files > 0) != s.traits.Files ||
		(i.ID != "") != s.traits.Files || first.StateLost {
		t.Fatalf("stateful %v, files %v: %+v, lost %v", s.traits.Stateful, s.traits.Files, i, first.StateLost)
	}
	t.Run("the same as long as nothing is lost", func(t *testing.T) {
		same(t, first, in("a", "kept = 2"))
		same(t, first, in("a", "raise ValueError()"))
		same(t, first, in("a", "")) // nothing to run is a question for it
		files := in("a", "")
		files.InputFiles = []codeexec.File{{Name: "in", Content: []byte("x")}}
		same(t, first, files)
	})
	t.Run("files last as it says", func(t *testing.T) {
		files := in("a", "")
		files.InputFiles = []codeexec.File{{Name: "there", Content: []byte("x")}}
		runIn(t, e, files)
		want := "False\n"
		if s.traits.Files {
			want = "True\n"
		}
		wantOutput(t, runIn(t, e, in("a", "import os; print(os.path.exists('there'))")), want)
	})
	t.Run("wrappers pass it on, and are looked through", func(t *testing.T) {
		wrapped := codeexec.Observe(e, codeexec.ObserveOptions{})
		wrapped = codeexec.Observe(wrapped, codeexec.ObserveOptions{})
		if r := runIn(t, wrapped, in("a", "1")); r.Instance != first.Instance {
			t.Errorf("got %+v, want %+v", r.Instance, first.Instance)
		}
		last := wrapped
		for u, ok := last.(codeexec.Unwrapper); ok; u, ok = last.(codeexec.Unwrapper) {
			last = u.Unwrap()
		}
		if last != e {
			t.Errorf("the wrappers lead to a %T, not to the %T", last, e)
		}
	})
	if s.traits.Stateful {
		t.Run("a kernel that is lost", func(t *testing.T) {
			before := same(t, first, in("a", "kept = 3"))
			r := runIn(t, e, in("a", "import os; os._exit(5)"))
			s.lost(t, before, r, false)
			r = same(t, r, in("a", "print('kept' in globals())"))
			if r.Blocks[0].Stdout != "False\n" {
				t.Errorf("got %+v", r)
			}
			// One that dies when nobody looks.
			before = same(t, r, in("a", "import threading, os, time\nkept = 4\nthreading.Thread(target=lambda: (time.sleep(.3), os._exit(5))).start()"))
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				r = runIn(t, e, in("a", "import threading; print('kept' in globals())"))
				if r.Blocks[0].Stdout == "False\n" || r.StateLost {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it does not end")
				}
				if r.Instance != before.Instance {
					t.Errorf("variables are there: %+v, before %+v", r.Instance, before.Instance)
				}
			}
			s.lost(t, before, r, false)
			same(t, r, in("a", "1"))
		})
		t.Run("a kernel whose time is over", func(t *testing.T) {
			e := s.traits.Short(t)
			t.Cleanup(func() { e.Close() })
			before := runIn(t, e, in("a", "kept = 5"))
			r := runIn(t, e, in("a", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"))
			s.lost(t, before, r, false)
			if r = runIn(t, e, in("a", "print('kept' in globals())")); r.Blocks[0].Stdout != "False\n" || r.StateLost {
				t.Errorf("got %+v", r)
			}
		})
	}
	if s.traits.Lose != nil {
		t.Run("a place that is lost", func(t *testing.T) {
			files := in("a", "")
			files.InputFiles = []codeexec.File{{Name: "there", Content: []byte("x")}}
			before, other := runIn(t, e, files), runIn(t, e, in("b", ""))
			s.traits.Lose(t, e, "a")
			s.traits.Lose(t, e, "b")
			for id, before := range map[string]codeexec.CodeExecutionResult{"a": before, "b": other} {
				r, err := e.ExecuteCode(t.Context(), in(id, ""))
				if cubby.CodeOf(err) == cubby.CodeSandboxGone { // this call found out
					r, err = e.ExecuteCode(t.Context(), in(id, ""))
				}
				if err != nil {
					t.Fatal(err)
				}
				if id == "b" && !r.StateLost && r.Instance.Files > before.Instance.Files {
					continue // it had left nothing there
				}
				s.lost(t, before, r, true)
				r = runIn(t, e, in(id, "import os; print(os.path.exists('there'))"))
				if r.Output != "False\n" || r.StateLost || r.FilesLost {
					t.Errorf("%s: got %+v", id, r)
				}
			}
		})
	}
}

// lost checks that r says what was lost since before.
func (s suite) lost(t *testing.T, before, r codeexec.CodeExecutionResult, place bool) {
	t.Helper()
	if !r.StateLost || r.FilesLost != place {
		t.Errorf("state lost %v, files lost %v, want true, %v", r.StateLost, r.FilesLost, place)
	}
	now, was := r.Instance, before.Instance
	variables, files := now.Losses(was)
	if variables != s.traits.Stateful || files != place {
		t.Errorf("variables lost %v, files lost %v: %+v, before %+v", variables, files, now, was)
	}
	if (now.Memory > was.Memory) != s.traits.Stateful || (now.Files > was.Files) != place || now.Memory < was.Memory {
		t.Errorf("got %+v, before %+v", now, was)
	}
	if !place && now.ID != was.ID {
		t.Errorf("it was in %s, now in %s", was.ID, now.ID)
	}
}
