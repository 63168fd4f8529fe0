package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// fakeKey is the API key of a fakeServer.
const fakeKey = "e2b_right"

// fakeServer is a server that has sandboxes already, made by hostile hands, and
// whose new ones are those of the fake. It writes down what it is asked to change.
type fakeServer struct {
	*fake

	mu      sync.Mutex
	boxes   []fakeBox
	ended   map[string]string // the reasons, by id
	changes []string
	secrets []fakeSecret

	creating func(ctx context.Context) // called in the middle of a create; may be nil
}

type fakeBox struct {
	ID       string            `json:"sandboxID"`
	Template string            `json:"templateID"`
	State    string            `json:"state"`
	Started  time.Time         `json:"startedAt,omitzero"`
	End      time.Time         `json:"endAt,omitzero"`
	CPUs     int               `json:"cpuCount"`
	Memory   int               `json:"memoryMB"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

type fakeSecret struct {
	Name     string            `json:"name"`
	Version  int               `json:"currentVersion"`
	Created  time.Time         `json:"createdAt"`
	Metadata map[string]string `json:"metadata"`
	value    string
}

func newFakeServer() *fakeServer {
	now := time.Now()
	at := func(started, left time.Duration) (time.Time, time.Time) { return now.Add(-started), now.Add(left) }
	box := func(id, template, state string, started, left time.Duration, cpus, memory int, metadata map[string]string) fakeBox {
		b := fakeBox{ID: id, Template: template, State: state, CPUs: cpus, Memory: memory, Metadata: metadata}
		b.Started, b.End = at(started, left)
		return b
	}
	return &fakeServer{
		fake: &fake{files: map[string]fakeFile{}},
		boxes: []fakeBox{
			box("iannnnnnnnnnnnnnnnnnn", "code-interpreter-v1", "running", 90*time.Minute+30*time.Second, 5*time.Hour+30*time.Minute, 1, 512,
				map[string]string{"user": "ann", "about": "what she wants to have done today, and tomorrow", "a=b": "c"}),
			box("ihostilllllllllllllle", "x\x1b[2J\u202ey", "paused", 3*time.Hour+30*time.Minute, 60*time.Hour, 16, 1536,
				map[string]string{"\x1b]0;title\a": "red\x1b[31m\r\nifaked  base", "名前": "説明"}),
			{ID: "isilentttttttttttttt1", Template: "", State: ""},
			box("isilentttttttttttttt2", "base", "running", -time.Hour, -time.Hour, 2, 2048, nil),
		},
		ended:   map[string]string{"ioldddddddddddddddddd": "its timeout was over"},
		secrets: []fakeSecret{{Name: "\x1b[2Jold\n", Version: 3, Created: now.Add(-time.Hour), Metadata: map[string]string{"a": "\x1b[31m"}}},
	}
}

// serveSecrets answers calls about secrets. It repeats a value with
// "repeat" in it.
func (f *fakeServer) serveSecrets(w http.ResponseWriter, r *http.Request, refuse func(int, string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body struct{ Name, Value string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/secrets"), "/")
	i := slices.IndexFunc(f.secrets, func(s fakeSecret) bool { return s.Name == strings.ToLower(name) })
	switch {
	case strings.Contains(body.Value, "repeat"):
		refuse(http.StatusBadRequest, "what is "+body.Value)
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(f.secrets)
	case name == "":
		f.secrets = append(f.secrets, fakeSecret{Name: strings.ToLower(body.Name), Version: 1, value: body.Value})
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(f.secrets[len(f.secrets)-1])
	case i < 0:
		refuse(http.StatusNotFound, "Secret '"+name+"' not found")
	case r.Method == http.MethodDelete:
		f.secrets = slices.Delete(f.secrets, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.secrets[i].value = body.Value
		f.secrets[i].Version++
		_ = json.NewEncoder(w).Encode(f.secrets[i])
	}
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("E2b-Sandbox-Id") != "" {
		f.fake.ServeHTTP(w, r)
		return
	}
	refuse := func(status int, message string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": message})
	}
	if r.Header.Get("X-API-Key") != fakeKey {
		refuse(http.StatusUnauthorized, "Invalid API key, please visit a web site")
		return
	}
	if strings.HasPrefix(r.URL.Path, "/secrets") {
		f.serveSecrets(w, r, refuse)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/v2")
	id, call, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/sandboxes"), "/"), "/")
	if r.Method == http.MethodPost && id == "" {
		answer := httptest.NewRecorder()
		f.fake.ServeHTTP(answer, r)
		if answer.Code == http.StatusCreated {
			f.mu.Lock()
			f.boxes = append(f.boxes, fakeBox{ID: "ifake"})
			delete(f.ended, "ifake")
			f.changes = append(f.changes, "created ifake")
			f.mu.Unlock()
			if f.creating != nil {
				f.creating(r.Context())
			}
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.boxes, func(b fakeBox) bool { return b.ID == id })
	reason, ended := f.ended[id]
	switch {
	case id == "":
		page := slices.DeleteFunc(slices.Clone(f.boxes), func(b fakeBox) bool {
			filter := r.URL.Query().Get("metadata")
			return filter != "" && filter != "user="+b.Metadata["user"]
		})
		_ = json.NewEncoder(w).Encode(page)
	case call == "logs" && (i >= 0 || ended):
		logs := `{"timestamp":"2026-01-02T03:04:05.6789Z","level":"info","message":"Sandbox created","fields":{"template_id":"base","by":"a b","é":""}},
			{"timestamp":"2026-01-02T03:04:05.6789Z","level":"\u001bcwarn","message":"a \"b\"\n\u001b[2J\u202ec","fields":{"\u009b1m":"\r"}}`
		if ended {
			logs += fmt.Sprintf(`,{"timestamp":"2026-01-02T03:05:00Z","level":"info","message":%q}`, "Sandbox ended: "+reason)
		}
		io.WriteString(w, `{"logs":[`+logs+`]}`)
	case ended:
		refuse(http.StatusNotFound, "sandbox "+id+" ended: "+reason)
	case i < 0:
		refuse(http.StatusNotFound, "there is no sandbox "+id)
	case r.Method == http.MethodDelete:
		f.boxes = slices.Delete(f.boxes, i, i+1)
		f.ended[id] = "it was killed"
		f.changes = append(f.changes, "killed "+id)
		w.WriteHeader(http.StatusNoContent)
	case call == "connect":
		f.changes = append(f.changes, "connected "+id)
		fmt.Fprintf(w, `{"sandboxID":%q}`, id)
	default:
		_ = json.NewEncoder(w).Encode(f.boxes[i])
	}
}
