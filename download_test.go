package cubby_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

// TestDownloadNamesWhatCannotBeRead: a listing passes over a folder that the
// sandbox may not read, as if it were empty; a download says so.
func TestDownloadNamesWhatCannotBeRead(t *testing.T) {
	folder := func(name string) string {
		return `{"name":"` + name + `","type":"FILE_TYPE_DIRECTORY","path":"/d/` + name + `","mode":493}`
	}
	e := &envd{data: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") })}
	e.methods = map[string]http.HandlerFunc{"ListDir": func(w http.ResponseWriter, r *http.Request) {
		calls := e.called("ListDir")
		switch body := calls[len(calls)-1].body; {
		case strings.Contains(body, "/d/shut"):
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"code":"permission_denied","message":"open /d/shut: permission denied"}`)
		case strings.Contains(body, "/d/empty"):
			io.WriteString(w, `{}`)
		default:
			io.WriteString(w, `{"entries":[`+folder("empty")+`,`+folder("full")+
				`,{"name":"f","type":"FILE_TYPE_FILE","path":"/d/full/f","size":"1"},`+folder("shut")+`]}`)
		}
	}}
	dir := t.TempDir()
	d, err := startEnvd(t, e).Files().Download(t.Context(), "/d", dir, cubby.DownloadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Left) != 1 || d.Left[0].Path != "shut" || !errors.Is(d.Left[0].Why, fs.ErrPermission) {
		t.Errorf("left %+v", d.Left)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "full/f")); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
	if n := len(e.called("ListDir")); n != 3 {
		t.Errorf("%d listings", n)
	}
}
