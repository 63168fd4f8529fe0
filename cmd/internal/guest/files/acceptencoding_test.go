//go:build linux

package files

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
)

// TestAcceptsGzip is RFC 9110 for a server that has gzip and plain.
func TestAcceptsGzip(t *testing.T) {
	for accept, want := range map[string]string{
		"":                              "plain",
		"gzip":                          "gzip",
		"gzip, deflate":                 "gzip", // Node
		"gzip, deflate, br, zstd":       "gzip", // browsers, Python
		"GZIP":                          "gzip",
		"x-gzip":                        "gzip",
		"gzip;q=0.1":                    "gzip",
		"gzip; q=0":                     "plain",
		"gzip;q=0.000":                  "plain",
		"gzip;Q=0":                      "plain",
		"gzip;q=x":                      "gzip",
		"gzip;q=7":                      "gzip",
		"br":                            "plain",
		"identity":                      "plain",
		"identity, gzip":                "gzip",
		"identity;q=0.9, gzip;q=0.1":    "plain",
		"identity;q=0.1, gzip;q=0.9":    "gzip",
		"*":                             "plain",
		"*;q=0":                         "none",
		"identity;q=0":                  "none",
		"identity;q=0, br":              "none",
		"identity;q=0, *":               "gzip",
		"identity;q=0, gzip;q=0, *":     "none",
		"identity;q=0.5, *;q=0":         "plain",
		"gzip, *;q=0":                   "gzip",
		";;;,,q=,gzip;;q=0.5;x=y,  ,;q": "gzip",
	} {
		got := "plain"
		if gzipped, ok := acceptsGzip([]string{accept}); !ok {
			got = "none"
		} else if gzipped {
			got = "gzip"
		}
		if got != want {
			t.Errorf("%q: %s, not %s", accept, got, want)
		}
	}
	if gzipped, _ := acceptsGzip([]string{"br", "gzip"}); !gzipped {
		t.Error("the second header does not count")
	}
}

func FuzzAcceptEncoding(f *testing.F) {
	f.Add("gzip;q=0.5, identity; q=0, *")
	f.Fuzz(func(t *testing.T, accept string) {
		gzipped, ok := acceptsGzip([]string{accept})
		if gzipped && !ok {
			t.Error("gzip, and nothing")
		}
		if !strings.Contains(accept, "0") && !ok {
			t.Error("nothing was refused, and nothing will do")
		}
	})
}

// TestDownloads is the forms that a file goes out in.
func TestDownloads(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.WriteFile(b.at("t.txt"), []byte("0123456789"), 0o644), os.WriteFile(b.at("empty"), nil, 0o644),
		os.WriteFile(b.at("n\u00e4me \"x\".html"), []byte("<p>"), 0o644))
	comm, err := os.ReadFile("/proc/self/comm")
	guesttest.Must(t, err)
	modified := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	guesttest.Must(t, os.Chtimes(b.at("t.txt"), modified, modified))
	for _, c := range []struct {
		name, path string
		header     []string
		status     int
		body       string
		want       map[string]string // headers of the answer; empty values must not be there
	}{
		{"plain", "t.txt", nil, 200, "0123456789", map[string]string{
			"Content-Length": "10", "Content-Encoding": "", "Vary": "Accept-Encoding", "Content-Disposition": "inline; filename=t.txt",
			"Last-Modified": "Mon, 06 May 2024 07:08:09 GMT", "Accept-Ranges": "bytes", "Content-Type": "text/plain; charset=utf-8"}},
		{"gzip", "t.txt", []string{"Accept-Encoding", "gzip, deflate"}, 200, "0123456789", map[string]string{
			"Content-Encoding": "gzip", "Vary": "Accept-Encoding", "Content-Disposition": "inline; filename=t.txt", "Content-Type": "text/plain; charset=utf-8"}},
		{"empty files are plain", "empty", []string{"Accept-Encoding", "gzip"}, 200, "", map[string]string{"Content-Encoding": "", "Content-Length": "0"}},
		{"range", "t.txt", []string{"Accept-Encoding", "gzip", "Range", "bytes=2-4"}, 206, "234", map[string]string{"Content-Range": "bytes 2-4/10", "Content-Encoding": ""}},
		{"last bytes", "t.txt", []string{"Range", "bytes=-3"}, 206, "789", nil},
		{"beyond the end", "t.txt", []string{"Range", "bytes=10-"}, 416, "invalid range: failed to overlap\n", nil},
		{"not modified", "t.txt", []string{"Accept-Encoding", "gzip", "If-Modified-Since", "Mon, 06 May 2024 07:08:09 GMT"}, 304, "", nil},
		{"modified", "t.txt", []string{"Accept-Encoding", "gzip", "If-Modified-Since", "Mon, 06 May 2024 07:08:08 GMT"}, 200, "0123456789", map[string]string{"Content-Encoding": ""}},
		{"range of an older one", "t.txt", []string{"Range", "bytes=2-4", "If-Range", "Mon, 06 May 2024 07:08:08 GMT"}, 200, "0123456789", nil},
		{"neither form", "t.txt", []string{"Accept-Encoding", "identity;q=0"}, 406,
			`{"code":406,"message":"no acceptable encoding: the file comes plain or as gzip"}`, map[string]string{"Content-Disposition": ""}},
		{"any name", "n%C3%A4me+%22x%22.html", nil, 200, "<p>", map[string]string{"Content-Disposition": "inline; filename*=utf-8''n%C3%A4me%20%22x%22.html"}},
		{"a file of the kernel", "/proc/self/comm", nil, 200, string(comm), nil},
		{"a file of the kernel, gzip", "/proc/self/comm", []string{"Accept-Encoding", "gzip"}, 200, string(comm), map[string]string{"Content-Encoding": "gzip"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, envd: b.envd}
			resp, body := b.do("GET", "/files?path="+c.path, nil, c.header...)
			if resp.Header.Get("Content-Encoding") == "gzip" {
				z, err := gzip.NewReader(strings.NewReader(body))
				guesttest.Must(t, err)
				plain, err := io.ReadAll(z)
				guesttest.Must(t, err)
				body = string(plain)
			}
			if resp.StatusCode != c.status || body != c.body {
				t.Errorf("%s %q", resp.Status, body)
			}
			for name, want := range c.want {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %q, not %q", name, got, want)
				}
			}
		})
	}
	for _, encoding := range []string{"", "gzip"} {
		req, _ := http.NewRequest("HEAD", b.envd.URL+"/files?path=t.txt", nil)
		req.Header.Set("Accept-Encoding", encoding)
		resp, err := guesttest.Plain.Do(req)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Encoding") != encoding {
			t.Errorf("HEAD %q: %v %v", encoding, resp, err)
		}
	}
}
