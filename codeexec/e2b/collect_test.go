//go:build linux

package e2b_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// A server may list what it likes: files come by safe names and within the
// limits, however much of them it sends.
func TestCollectFromLiars(t *testing.T) {
	entry := func(path, kind, size string) string {
		return fmt.Sprintf(`{"name":"n","type":"FILE_TYPE_%s","path":%q,"size":%q}`, kind, path, size)
	}
	f := &foreign{}
	f.answer("POST /filesystem.Filesystem/Stat", says(200, `{"entry":{"type":"FILE_TYPE_DIRECTORY","path":"/home/user"}}`))
	e := create(t, f.serve(t, e2b.Config{}))
	listing := strings.Join([]string{
		entry("/home/user/../../etc/passwd", "FILE", "1"), entry("/etc/passwd", "FILE", "1"), entry("/home/user/\u202ex", "FILE", "1"),
		entry("/home/user/pipe", "UNSPECIFIED", "1"), entry("/home/user/dir", "DIRECTORY", "1"), entry("/home/user/conversations/other/x", "FILE", "1"),
		entry("/home/user/giant", "FILE", "9000000000000000000"), entry("/home/user/short", "FILE", "1000"), entry("/home/user/short", "FILE", "1000"),
		entry("/home/user/gone", "FILE", "1"),
	}, ",")
	listed := 0
	f.answer("POST /filesystem.Filesystem/ListDir", func(w http.ResponseWriter, _ *http.Request) {
		if listed++; listed == 1 {
			io.WriteString(w, "{}")
			return
		}
		io.WriteString(w, `{"entries":[`+listing+`]}`)
	})
	f.answer("GET /files", func(w http.ResponseWriter, r *http.Request) {
		switch name := r.URL.Query().Get("path"); name {
		case "/home/user/giant":
			for range 6 {
				w.Write(make([]byte, 1<<20))
			}
		case "/home/user/short":
			io.WriteString(w, "short")
		case "/home/user/gone":
			w.WriteHeader(http.StatusNotFound)
		default:
			t.Errorf("%s was read", name)
		}
	})
	r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "1", Collect: []string{"**"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.OutputFiles) != 2 || !r.Truncated {
		t.Fatalf("got %d files, truncated %v", len(r.OutputFiles), r.Truncated)
	}
	if g, s := r.OutputFiles[0], r.OutputFiles[1]; g.Name != "giant" || len(g.Content) != codeexec.DefaultMaxFileBytes ||
		!g.Truncated || string(s.Content) != "short" || s.Truncated {
		t.Errorf("got %s with %d bytes, %s with %q", g.Name, len(g.Content), s.Name, s.Content)
	}

	t.Run("nonsense", func(t *testing.T) {
		for _, body := range []string{"", "null", "[]", "<html>", `{"entries":[{"size":"x"}]}`, `{"entries":7}`} {
			f.answer("POST /filesystem.Filesystem/ListDir", says(200, body))
			r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{Code: "1", Collect: []string{"**"}})
			if len(r.OutputFiles) != 0 || err != nil && cubby.CodeOf(err) == 0 {
				t.Errorf("%.40q: got %+v, %v", body, r, err)
			}
		}
	})
}
