package cubby_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

const watching = `{"start":{}}`

func happened(name, kind string) string {
	return frame(0, fmt.Sprintf(`{"filesystem":{"name":%q,"type":"EVENT_TYPE_%s"}}`, name, kind))
}

func TestWatchHears(t *testing.T) {
	e := &envd{methods: map[string]http.HandlerFunc{"WatchDir": stream(
		frame(0, `{"keepalive":{}}`), frame(0, watching), happened("a", "CREATE"), frame(0, `{"keepalive":{}}`),
		frame(0, `{"filesystem":{"name":"a","type":"EVENT_TYPE_WRITE","entry":{"name":"a","path":"/x/a","type":"FILE_TYPE_FILE","size":"3"}}}`),
		happened("b", "LATER"), frame(0, `{"confetti":{}}`), frame(2, `{"error":{"code":"resource_exhausted","message":"too slow"}}`),
	)}}
	w, err := startEnvd(t, e).Files().As("root").Watch(t.Context(), "x", cubby.WatchOptions{Recursive: true, Entries: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var last error
	for ev, err := range w.Events() {
		if last = err; err == nil {
			got = append(got, string(ev.Type)+" "+ev.Name)
			if ev.Entry != nil && ev.Entry.Size != 3 {
				t.Errorf("entry %+v", ev.Entry)
			}
		}
	}
	if want := []string{"create a", "write a", "later b"}; !slices.Equal(got, want) || cubby.CodeOf(last) != cubby.CodeRateLimited {
		t.Errorf("got %q, %v", got, last)
	}
	sent := e.called("WatchDir")[0]
	if sent.body != frame(0, `{"path":"/home/user/x","recursive":true,"includeEntry":true}`) || sent.header.Get("Authorization") != "Basic cm9vdDo=" {
		t.Errorf("sent %q, %v", sent.body, sent.header)
	}
}

func TestHostileWatches(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames []string
		code   cubby.Code
	}{
		{"nothing", nil, cubby.CodeSandboxGone},
		{"over before it began", []string{over}, cubby.CodeInternal},
		{"over by itself", []string{frame(0, watching), over}, cubby.CodeInternal},
		{"cut", []string{frame(0, watching), "\x00"}, cubby.CodeSandboxGone},
		{"a giant claim", []string{frame(0, watching), "\x00\x7f\xff\xff\xff"}, cubby.CodeInternal},
		{"no JSON", []string{frame(0, watching), frame(0, "x")}, cubby.CodeInternal},
		{"an entry of nonsense", []string{frame(0, watching), frame(0, `{"filesystem":{"name":"a","entry":{"size":"-1"}}}`)}, cubby.CodeInternal},
		{"no such folder", []string{frame(2, `{"error":{"code":"not_found","message":"no"}}`)}, cubby.CodeNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sbx := startEnvd(t, &envd{methods: map[string]http.HandlerFunc{"WatchDir": stream(tt.frames...)}})
			w, err := sbx.Files().Watch(t.Context(), "x", cubby.WatchOptions{})
			if err == nil {
				_, err = w.Next()
			}
			if cubby.CodeOf(err) != tt.code {
				t.Errorf("got %v (%v), want %v", err, cubby.CodeOf(err), tt.code)
			}
		})
	}
}

// TestWatchEnds with its context and with Close, and a loop over it without an
// error then.
func TestWatchEnds(t *testing.T) {
	for name, end := range map[string]func(*cubby.Watch, context.CancelFunc){
		"close":   func(w *cubby.Watch, _ context.CancelFunc) { w.Close() },
		"context": func(_ *cubby.Watch, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			sbx := startEnvd(t, &envd{methods: map[string]http.HandlerFunc{"WatchDir": func(w http.ResponseWriter, r *http.Request) {
				stream(frame(0, watching), happened("a", "CREATE"))(w, r)
				<-r.Context().Done()
			}}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w, err := sbx.Files().Watch(ctx, "x", cubby.WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			n := 0
			for _, err := range w.Events() {
				if err != nil {
					t.Errorf("got %v", err)
				}
				n++
				end(w, cancel)
			}
			if n != 1 {
				t.Errorf("%d events", n)
			}
			if _, err := w.Next(); cubby.CodeOf(err) != cubby.CodeCanceled || strings.Contains(fmt.Sprint(err), "gone") {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestFileCalls(t *testing.T) {
	e := &envd{methods: map[string]http.HandlerFunc{
		"Move":   answer(`{"entry":{"name":"b","path":"/home/user/b","type":"FILE_TYPE_FILE","metadata":{"k":"v"}}}`),
		"Remove": answer(`{}`),
		"Stat":   refuse(http.StatusNotFound, "not_found", "no"),
	}}
	var upload *http.Request
	e.data = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { upload = r })
	f := startEnvd(t, e).Files().As("root")
	if got, err := f.Move(t.Context(), "a", "/x/../b"); err != nil || got.Path != "/home/user/b" || got.Metadata["k"] != "v" {
		t.Errorf("moved to %+v, %v", got, err)
	}
	if got := e.called("Move")[0]; got.body != `{"source":"/home/user/a","destination":"/b"}` || got.header.Get("Authorization") != "Basic cm9vdDo=" {
		t.Errorf("sent %q %v", got.body, got.header)
	}
	if is, err := f.Exists(t.Context(), "a"); is || err != nil {
		t.Errorf("exists: %v, %v", is, err)
	}
	if err := f.Remove(t.Context(), "a"); err != nil || e.called("Remove")[0].body != `{"path":"/home/user/a"}` {
		t.Errorf("removed %v, %v", e.called("Remove"), err)
	}
	if err := f.Write(t.Context(), "a", strings.NewReader("x"), 0o600, cubby.WithFileMetadata(map[string]string{"key": "value"})); err != nil {
		t.Fatal(err)
	}
	if q := upload.URL.Query(); q.Get("path") != "/home/user/a" || q.Get("username") != "root" || q.Get("mode") != "600" || upload.Header.Get("X-Metadata-Key") != "value" {
		t.Errorf("uploaded to %s with %v", upload.URL, upload.Header)
	}
	for k, v := range map[string]string{"": "v", "a b": "v", "é": "v", "k": "a\nb", "k2": "é"} {
		err := f.Write(t.Context(), "a", strings.NewReader("x"), 0, cubby.WithFileMetadata(map[string]string{k: v}))
		if cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("metadata %q=%q: %v", k, v, err)
		}
	}
}
