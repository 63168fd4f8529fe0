//go:build linux

package interpreter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (b *box) post(path, body string) (status int, text string) {
	b.Helper()
	resp, err := http.Post(b.code.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all)
}

func (b *box) context(language string) protocol.Context {
	b.Helper()
	status, text := b.post("/contexts", fmt.Sprintf(`{"language":%q}`, language))
	var c protocol.Context
	if err := json.Unmarshal([]byte(text), &c); err != nil || status != 200 {
		b.Fatalf("%d %s", status, text)
	}
	return c
}

// TestTypeScriptContext runs on JavaScript's kernel and stays TypeScript.
func TestTypeScriptContext(t *testing.T) {
	b := newBox(t)
	b.needs(settings.JavaScript)
	c := b.context(" TS ")
	if c.Language != settings.TypeScript {
		t.Fatalf("%+v", c)
	}
	a := b.run(guesttest.Call{Context: c.ID, Code: "const n: number = 4; n * 2"})
	if len(a.Results) != 1 || a.Results[0].Text != "8" {
		t.Fatalf("%+v %+v", a.Results, a.Failure)
	}
}

// TestResultTexts are E2B's: a string is shown without its quotes, also if nothing
// is left.
func TestResultTexts(t *testing.T) {
	b := newBox(t)
	for code, want := range map[string]string{
		`"a 'quoted' word"`:   `"text":"a 'quoted' word"`,
		`''`:                  `"text":""`,
		`[1, {"a": None}]`:    `"json":[1,{"a":null}]`,
		`{"é": "\U0001F600"}`: `"json":{"\u00e9":"\ud83d\ude00"}`,
		`3`:                   `"text":"3"`,
		"  x = 5\n  x":        `"text":"5"`,
		`float("nan")`:        `"text":"nan"`,
		`[float("nan")]`:      `"text":"[nan]"`,
	} {
		body, _ := json.Marshal(protocol.ExecuteRequest{Code: code})
		status, text := b.post("/execute", string(body))
		line := ""
		for l := range strings.Lines(text) {
			if strings.Contains(l, `"type":"result"`) {
				line = l
			}
		}
		if status != 200 || !strings.Contains(line, want) || !strings.Contains(line, `"is_main_result":true`) || !strings.Contains(line, `"extra":{}`) {
			t.Errorf("%s: %d %q %s", code, status, line, text)
		}
	}
}

// lines reads an answer line by line.
func (b *box) lines(ctx context.Context, c guesttest.Call) (next func() protocol.Event, stop func()) {
	b.Helper()
	resp := b.request(ctx, c)
	if resp.StatusCode != 200 {
		b.Fatalf("status %d", resp.StatusCode)
	}
	r := bufio.NewReader(resp.Body)
	return func() (e protocol.Event) {
		b.Helper()
		line, err := r.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			b.Fatalf("%v: %q", err, line)
		}
		return e
	}, func() { resp.Body.Close() }
}

// TestQueue puts calls behind one that takes long: each is answered at once, shows
// that it lives, and runs in its turn; one whose client goes away does not run.
func TestQueue(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	gate := filepath.Join(b.home, "gate")
	first, stop := b.lines(ctx, guesttest.Call{Code: "import os, time\nprint('running')\nwhile not os.path.exists('" + gate + "'): time.sleep(.01)\norder = ['first']"})
	defer stop()
	for first().Text != "running\n" {
	}
	leaving, leave := context.WithCancel(ctx)
	_, stop = b.lines(leaving, guesttest.Call{Code: "order.append('left')"})
	defer stop()
	second, stop := b.lines(ctx, guesttest.Call{Code: "order.append('second'); print(order)"}) // its head has come
	defer stop()
	leave()
	if e := second(); e.Type != protocol.EventKeepalive {
		t.Fatalf("%+v", e)
	}
	// A second context does not wait for the first.
	c := b.context("python")
	if a := b.run(guesttest.Call{Context: c.ID, Code: "open('" + gate + "', 'w').close()"}); a.End.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	for {
		e := second()
		if e.Type == protocol.EventStdout {
			if e.Text != "['first', 'second']\n" {
				t.Fatalf("%q", e.Text)
			}
			break
		}
	}
}

// TestDeletedWhileQueued deletes a context under a call that waits for it.
func TestDeletedWhileQueued(t *testing.T) {
	b := newBox(t)
	c := b.context("python")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	running, stop := b.lines(ctx, guesttest.Call{Context: c.ID, Code: "import time; print('running', flush=True); time.sleep(60)"})
	defer stop()
	for running().Text != "running\n" {
	}
	waiting, stop := b.lines(ctx, guesttest.Call{Context: c.ID, Code: "1"})
	defer stop()
	req, _ := http.NewRequestWithContext(ctx, "DELETE", b.code.URL+"/contexts/"+c.ID, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for {
		e := waiting()
		if e.Type == protocol.EventError {
			if e.ErrorData.Value != "Context "+c.ID+" not found" {
				t.Fatalf("%+v", e.ErrorData)
			}
			break
		}
	}
	if waiting().Type != protocol.EventEnd {
		t.Fatal("no end")
	}
}

// TestEnvironmentIsPutBack sets variables for one call, over those of all calls.
func TestEnvironmentIsPutBack(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{EnvVars: map[string]string{"ALL": "global"}})
	for _, c := range []struct{ language, code string }{
		{settings.Python, "import os; print(os.environ.get('ALL'), os.environ.get('ONE', 'none'))"},
		{settings.JavaScript, "console.log(process.env.ALL, process.env.ONE || 'none')"},
		{settings.Bash, "echo $ALL ${ONE-none}; bash -c 'echo $ALL ${ONE-none}' >/dev/null"},
	} {
		t.Run(c.language, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			for _, step := range []struct {
				env  map[string]string
				want string
			}{
				{nil, "global none\n"},
				{map[string]string{"ONE": "1", "ALL": "own"}, "own 1\n"},
				{nil, "global none\n"},
			} {
				if a := b.run(guesttest.Call{Language: c.language, Code: c.code, Env: step.env}); a.Stdout != step.want {
					t.Errorf("%v: %q %s", step.env, a.Stdout, a.Stderr)
				}
			}
		})
	}
}

// TestLargeSource runs what agents send: archives in the middle of code.
func TestLargeSource(t *testing.T) {
	b := newBox(t)
	archive := strings.Repeat("QUJD", 4<<20) // 16 MiB
	for _, c := range []struct{ name, language, code, stdout string }{
		{"a here-document of one line", settings.Bash, "set -e\ncat > a.b64 <<'EOF'\n" + archive + "\nEOF\nbase64 -d < a.b64 | wc -c", "12582912\n"},
		{"many lines", settings.Bash, "cat > lines <<'EOF'\n" + strings.Repeat("<a & 'line' of \\text $HOME é>\n", 300_000) + "EOF\nwc -l < lines; tail -1 lines", "300000\n<a & 'line' of \\text $HOME é>\n"},
		{"a literal", settings.Python, "import base64\nprint(len(base64.b64decode('" + archive + "')))", "12582912\n"},
		{"a comment", settings.JavaScript, "console.log('" + archive + "'.length)", "16777216\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, code: b.code}
			b.needs(c.language)
			if a := b.run(guesttest.Call{Language: c.language, Code: c.code}); a.Stdout != c.stdout || a.End.ExitCode != 0 {
				t.Fatalf("%.200q %.200q %+v %.200v", a.Stdout, a.Stderr, a.End, a.Failure)
			}
		})
	}
	t.Run("over the limit", func(t *testing.T) {
		b := &box{T: t, g: b.g, code: b.code}
		status, text := b.post("/execute", `{"code":"`+strings.Repeat("a", maxSource+1)+`"}`)
		if status != http.StatusRequestEntityTooLarge || text != "the source is over the limit of 64 MiB: upload data as a file" {
			t.Fatalf("%d %q", status, text)
		}
		if status, text = b.post("/execute", `{"code":"`+strings.Repeat("a", maxExecuteBody)+`"}`); status != http.StatusRequestEntityTooLarge {
			t.Fatalf("%d %q", status, text)
		}
		if a := b.run(guesttest.Call{Code: "print('on')"}); a.Stdout != "on\n" {
			t.Fatalf("%+v", a)
		}
	})
	if n := b.g.waiting.Load(); n != 0 {
		t.Errorf("%d bytes of source are still counted", n)
	}
}

// TestLargeOutput prints a line of 16 MiB, and more than a client without a bound
// of its own gets.
func TestLargeOutput(t *testing.T) {
	b := newBox(t)
	a := b.run(guesttest.Call{Language: "bash", Code: "head -c 16777216 /dev/zero | tr '\\0' x; echo; echo end"})
	if len(a.Stdout) != 16<<20+5 || !strings.HasSuffix(a.Stdout, "x\nend\n") || a.End.Truncated {
		t.Fatalf("%d bytes, %+v", len(a.Stdout), a.End)
	}
	a = b.run(guesttest.Call{Language: "bash", Code: "yes 0123456789abcde | head -c 80000000; echo done >&2"})
	if len(a.Stdout) != 64<<20 || !a.End.Truncated || a.End.Limit != "output" || a.Stderr != "done\n" || a.End.ExitCode != 0 {
		t.Fatalf("%d bytes, %q %+v", len(a.Stdout), a.Stderr, a.End)
	}
}

// TestContextsRunSideBySide has each of five wait for all the others.
func TestContextsRunSideBySide(t *testing.T) {
	b := newBox(t)
	var all sync.WaitGroup
	for i := range 5 {
		c := b.context("python")
		all.Go(func() {
			a := b.run(guesttest.Call{Context: c.ID, Code: fmt.Sprintf(`
import glob, time
open('there%d', 'w').close()
end = time.time() + 30
while len(glob.glob('there*')) < 5 and time.time() < end: time.sleep(.01)
len(glob.glob('there*'))`, i)})
			if len(a.Results) != 1 || a.Results[0].Text != "5" {
				t.Errorf("%+v %+v", a.Results, a.Failure)
			}
		})
	}
	all.Wait()
}

// TestOutputBetweenCells comes from a thread that outlives its cell: what it says
// while no cell runs is nobody's; in the next cell it is that cell's, as in a
// notebook.
func TestOutputBetweenCells(t *testing.T) {
	b := newBox(t)
	b.run(guesttest.Call{Code: `
import os, threading, time
def background():
    time.sleep(.2)
    print("between", flush=True)
    open("said", "w").close()
    while not os.path.exists("next"): time.sleep(.01)
    print("within", flush=True)
    open("done", "w").close()
threading.Thread(target=background).start()`})
	b.until("said")
	a := b.run(guesttest.Call{Code: "open('next', 'w').close()\nwhile not os.path.exists('done'): time.sleep(.01)\nprint('end')"})
	if a.Stdout != "within\nend\n" {
		t.Fatalf("%q", a.Stdout)
	}
}

func (b *box) until(file string) {
	b.Helper()
	guesttest.WaitFor(b.T, file, func() bool {
		found, _ := filepath.Glob(filepath.Join(b.home, file))
		return len(found) > 0
	})
}

// FuzzReadExecute holds that a body is refused or within its bounds.
func FuzzReadExecute(f *testing.F) {
	f.Add([]byte(`{"code":"print(1)","language":"python","env_vars":{"A":"b"}}`))
	f.Add([]byte(`{"code":"\u0000","context_id":"x","language":"y"}`))
	f.Add([]byte(`[{"code":1}]`))
	f.Add([]byte(`{"env_vars":{"A=":"\ud800"}} {}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("POST", "/execute", bytes.NewReader(body))
		req, status, err := readExecute(httptest.NewRecorder(), r)
		if err != nil {
			if status < 400 || status > 499 {
				t.Errorf("status %d: %v", status, err)
			}
			return
		}
		if strings.Contains(req.Code, "\x00") || req.ContextID != "" && req.Language != "" {
			t.Errorf("%+v", req)
		}
		for name, v := range req.EnvVars {
			if name == "" || strings.ContainsAny(name+v, "\x00") || strings.Contains(name, "=") {
				t.Errorf("variable %q=%q", name, v)
			}
		}
	})
}

// TestContextFolder makes contexts in folders that the code's user may not enter,
// or not any more.
func TestContextFolder(t *testing.T) {
	b := newBox(t, func(c *settings.Config) {
		if os.Getuid() == 0 { // whom nothing is refused
			c.SwitchUser, c.UID, c.GID = true, 65534, 65534
		}
	})
	if err := os.Chmod(filepath.Dir(b.home), 0o711); err != nil { // of all folders of this test
		t.Fatal(err)
	}
	folder := filepath.Join(b.home, "folder")
	if err := os.Mkdir(folder, 0); err != nil {
		t.Fatal(err)
	}
	want := "cwd '" + folder + "': permission denied"
	for _, language := range []string{settings.Python, settings.Bash} {
		body := fmt.Sprintf(`{"language":%q,"cwd":%q}`, language, folder)
		if status, text := b.post("/contexts", body); status != 400 || text != want {
			t.Errorf("%s: %d %q, want 400 %q", language, status, text, want)
		}
	}
	if n := len(b.g.contexts.all); n > 2 {
		t.Errorf("%d contexts are left", n)
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	status, text := b.post("/contexts", fmt.Sprintf(`{"language":"bash","cwd":%q}`, folder))
	var c protocol.Context
	if err := json.Unmarshal([]byte(text), &c); err != nil || status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	// Code that closes its folder loses the folder, and nothing else.
	if err := os.Chmod(folder, 0); err != nil {
		t.Fatal(err)
	}
	if status, text := b.post("/contexts/"+c.ID+"/restart", ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if a := b.run(guesttest.Call{Context: c.ID, Code: "pwd"}); a.Stdout != b.home+"\n" {
		t.Errorf("%q %q, want %q", a.Stdout, a.Stderr, b.home)
	}
}
