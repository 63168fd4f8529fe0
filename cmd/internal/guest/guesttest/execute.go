//go:build linux

package guesttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Answer is what one execution said.
type Answer struct {
	Lines          []protocol.Event
	Stdout, Stderr string
	Results        []protocol.Event
	Failure        *protocol.ErrorData
	End            protocol.EndOfExecution
	Kinds          string // of the lines, one letter each
}

// Call is an execution to be.
type Call struct {
	Language, Context, Code string
	Env                     map[string]string
	Header                  map[string]string
	Program                 *protocol.Program
	Stdin                   *protocol.Stdin
}

// Post posts c to a code interpreter. The caller closes the answer.
func Post(ctx context.Context, t testing.TB, server *httptest.Server, c Call) *http.Response {
	t.Helper()
	body, _ := json.Marshal(protocol.ExecuteRequest{Code: c.Code, Language: c.Language, ContextID: c.Context,
		EnvVars: c.Env, Program: c.Program, Stdin: c.Stdin})
	req, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"/execute", bytes.NewReader(body))
	for k, v := range c.Header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Run runs c in a code interpreter and reads its answer to the end.
func Run(t testing.TB, server *httptest.Server, c Call) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	resp := Post(ctx, t, server, c)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	var a Answer
	var stdout, stderr strings.Builder
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		for _, c := range lines.Bytes() {
			if c >= 0x7f {
				t.Fatalf("not ASCII: %s", lines.Bytes())
			}
		}
		e := protocol.Event{ResultData: &protocol.ResultData{}, ErrorData: &protocol.ErrorData{}, EndOfExecution: &protocol.EndOfExecution{}}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		a.Lines = append(a.Lines, e)
		a.Kinds += e.Type[:1]
		switch e.Type {
		case protocol.EventStdout:
			a.Kinds = a.Kinds[:len(a.Kinds)-1] + "o"
			stdout.WriteString(e.Text)
		case protocol.EventStderr:
			stderr.WriteString(e.Text)
		case protocol.EventResult:
			a.Results = append(a.Results, e)
		case protocol.EventError:
			a.Kinds = a.Kinds[:len(a.Kinds)-1] + "E"
			a.Failure = e.ErrorData
		case protocol.EventEnd:
			a.End = *e.EndOfExecution
		}
	}
	a.Stdout, a.Stderr = stdout.String(), stderr.String()
	if !strings.HasSuffix(a.Kinds, "e") {
		t.Fatalf("no end: %q, %v", a.Kinds, lines.Err())
	}
	return a
}

// Limit is the header of a call that may take d.
func Limit(d time.Duration) map[string]string {
	return map[string]string{protocol.HeaderTimeoutMS: fmt.Sprint(d.Milliseconds())}
}
