package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
)

// fake is a server that speaks the protocol and runs nothing. The "code" that
// it is given says what it does, a line at a time:
//
//	{…}               is answered as it stands
//	request           prints what it was asked: the create, language and headers
//	files             prints the files it was sent, with modes
//	write PATH TEXT   makes a file
//	entry {…}         adds an entry to every listing, true or not
//	sleep DURATION    does nothing for so long
//	hang              waits until the client goes away
//	cut               ends the answer there
//	interrupt         is Ctrl-C, and then as hang
//
// Without an end_of_execution the run ends well.
type fake struct {
	mu      sync.Mutex
	create  string
	files   map[string]fakeFile
	entries []json.RawMessage
}

type fakeFile struct {
	mode    string
	content string
	dir     bool
	changed time.Time
}

// openFake is an opener. CUBBY_FAKE says how it fails, if it does.
func openFake(mode string) opener {
	return func(context.Context, embedded.Config) (*cubby.Client, func() error, error) {
		if mode == "broken" {
			return nil, nil, &cubby.Error{Op: "open", Code: cubby.CodeIncompatible,
				Err: fmt.Errorf("cubby is of version 9.9.9"), Hint: "install the same version"}
		}
		f := &fake{files: map[string]fakeFile{}}
		srv := httptest.NewServer(f)
		c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL})
		return c, func() error { srv.CloseClientConnections(); srv.Close(); return nil }, err
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.URL.Path == "/v2/sandboxes":
		f.create = string(body)
		if strings.Contains(f.create, `"pids":77`) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"code":400,"message":"a limit of processes cannot be enforced here","hint":"leave --pids out"}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"sandboxID":"ifake","cubbyLimitsNotEnforced":["cpu"],"cubbyLimits":{"memoryMB":512,"cpus":1,"diskMB":1024,"pids":256}}`)
	case strings.HasPrefix(r.URL.Path, "/execute/stdin"):
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/execute":
		f.execute(w, r, body)
	case r.URL.Path == "/files" && r.Method == http.MethodPost:
		f.files[r.URL.Query().Get("path")] = fakeFile{mode: r.URL.Query().Get("mode"), content: string(body), changed: time.Now()}
		io.WriteString(w, `[]`)
	case r.URL.Path == "/files":
		file, ok := f.files[r.URL.Query().Get("path")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, file.content)
	case strings.HasSuffix(r.URL.Path, "/MakeDir"):
		var req struct{ Path string }
		_ = json.Unmarshal(body, &req)
		f.files[req.Path] = fakeFile{mode: r.Header.Get("Cubby-Mode"), dir: true}
		io.WriteString(w, `{}`)
	case strings.HasSuffix(r.URL.Path, "/ListDir"):
		f.list(w)
	default:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"code":404,"message":"the fake has no such thing"}`)
	}
}

func (f *fake) names() []string {
	var names []string
	for name := range f.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fake) list(w io.Writer) {
	entries := slices.Clone(f.entries)
	for _, name := range f.names() {
		file := f.files[name]
		kind := "FILE_TYPE_FILE"
		if file.dir {
			kind = "FILE_TYPE_DIRECTORY"
		}
		mode, _ := strconv.ParseUint(file.mode, 8, 32)
		e, _ := json.Marshal(map[string]any{
			"name": path.Base(name), "path": name, "type": kind, "size": strconv.Itoa(len(file.content)),
			"mode": mode, "modifiedTime": file.changed,
		})
		entries = append(entries, e)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"entries": entries})
}

func (f *fake) execute(w http.ResponseWriter, r *http.Request, body []byte) {
	var req struct {
		Code, Language string
		Env            map[string]string `json:"env_vars"`
	}
	_ = json.Unmarshal(body, &req)
	ended := false
	say := func(text string) {
		b, _ := json.Marshal(map[string]string{"type": "stdout", "text": text + "\n", "timestamp": "2026-01-01T00:00:00Z"})
		fmt.Fprintf(w, "%s\n", b)
	}
	for line := range strings.Lines(req.Code) {
		line = strings.TrimRight(line, "\r\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "request":
			say("create " + f.create)
			say("language " + req.Language)
			say(fmt.Sprintf("env %v", req.Env))
			for _, h := range []string{"Cubby-Timeout-Ms", "Cubby-Max-Output", "Cubby-Drain"} {
				say(h + " " + r.Header.Get(h))
			}
		case "files":
			for _, name := range f.names() {
				file := f.files[name]
				say(fmt.Sprintf("%s %s %q", file.mode, name, file.content))
			}
		case "write":
			name, text, _ := strings.Cut(rest, " ")
			f.files[path.Join(cubby.Home, name)] = fakeFile{mode: "644", content: text, changed: time.Now()}
		case "entry":
			f.entries = append(f.entries, json.RawMessage(rest))
		case "sleep":
			d, _ := time.ParseDuration(rest)
			time.Sleep(d)
		case "interrupt", "hang":
			if word == "interrupt" {
				_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		case "cut":
			return
		default:
			if strings.HasPrefix(line, "{") {
				fmt.Fprintln(w, line)
				ended = ended || strings.Contains(line, "end_of_execution")
			}
		}
	}
	if !ended {
		io.WriteString(w, `{"type":"end_of_execution","exit_code":0,"duration_ms":5}`+"\n")
	}
}
