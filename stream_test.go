package cubby

import (
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzStream(f *testing.F) {
	f.Add(`{"type":"stdout","text":"a"}` + "\n" + `{"type":"end_of_execution","exit_code":3}` + "\n")
	f.Add(`{"type":"result","png":"AA==","extra":{"a":1},"json":[[]]}` + "\n\n" + `{"type":"error","name":"x"}` + "\n")
	f.Add("{\"type\":\"stdout\",\"text\":\"\\ud800\"}\n")
	f.Add(`{"type":"result","left_out":["json"]}` + "\n" + `{"type":"end_of_execution","left_out":[{"result":-1},{"form":"data"}]}` + "\n")
	f.Fuzz(func(t *testing.T, in string) {
		const limit = 16
		r := newEventReader(strings.NewReader(in), limit, callbacks{}, slog.New(slog.DiscardHandler))
		err := r.run()
		ex := r.execution()
		if len(ex.Stdout) > limit || len(ex.Stderr) > limit {
			t.Errorf("%d and %d bytes of output", len(ex.Stdout), len(ex.Stderr))
		}
		if !utf8.ValidString(ex.Stdout) {
			t.Errorf("a character was cut: %q", ex.Stdout)
		}
		if err == nil && !strings.Contains(in, "end_of_execution") && !strings.Contains(in, `\u`) {
			t.Error("ended without an end")
		}
		for _, res := range ex.Results {
			b, err := res.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			var again Result
			if err := again.UnmarshalJSON(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLeftOut: which forms were too large is told at the end, by the number of the
// result's line; what makes no sense there says nothing.
func TestLeftOut(t *testing.T) {
	in := `{"type":"result","text":"a"}` + "\n" + `{"type":"result","text":"b"}` + "\n" +
		`{"type":"end_of_execution","left_out":[{"result":1,"form":"json"},{"result":1,"form":"data"},{"result":-1,"form":"x"},{"result":2}]}` + "\n"
	r := newEventReader(strings.NewReader(in), 16, callbacks{}, slog.New(slog.DiscardHandler))
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	results := r.execution().Results
	if got := results[0].LeftOut; len(got) != 0 {
		t.Errorf("of the first: %q", got)
	}
	if got := strings.Join(results[1].LeftOut, " "); got != "json data" {
		t.Errorf("of the second: %q", got)
	}
	b, err := results[1].MarshalJSON()
	if err != nil || !strings.Contains(string(b), `"left_out":["json","data"]`) {
		t.Errorf("%s, %v", b, err)
	}
	// A list is bounded, however long.
	long := `{"type":"end_of_execution","left_out":[` + strings.Repeat(`{"form":"json"},`, 100_000) + `{}]}` + "\n"
	r = newEventReader(strings.NewReader(`{"type":"result"}`+"\n"+long), 16, callbacks{}, slog.New(slog.DiscardHandler))
	if err := r.run(); err != nil || len(r.execution().Results[0].LeftOut) != maxNames {
		t.Errorf("%v, %d", err, len(r.execution().Results[0].LeftOut))
	}
}

func FuzzRelative(f *testing.F) {
	for _, s := range []string{"/home/user/a", "/home/user/../x", "/etc/passwd", "/home/user/.git/hooks/x", "/home/user/a\\b", "/home/user//a", "/home/user/\x1b]0;x", "/home/user/a/./b", "/home/user/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		rel, err := relative(Home, name)
		if err != nil {
			return
		}
		if rel == "" || strings.HasPrefix(rel, "/") || Home+"/"+rel != name {
			t.Errorf("%q became %q", name, rel)
		}
		for part := range strings.SplitSeq(rel, "/") {
			if part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git") {
				t.Errorf("%q became %q", name, rel)
			}
		}
	})
}
