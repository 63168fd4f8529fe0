package version

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cubby-sandbox/cubby/internal"
)

// TestHash: what is said between processes makes a build another one, and what
// nobody says does not.
func TestHash(t *testing.T) {
	tree := func(change func(fstest.MapFS)) string {
		files := fstest.MapFS{
			"handshake/handshake.go": {Data: []byte("package handshake\n\nconst FDReady = 4\n")},
			"protocol/control.go":    {Data: []byte("package protocol\n")},
			"protocol/check_test.go": {Data: []byte("package protocol\n")},
		}
		change(files)
		return Of(files)
	}
	was := tree(func(fstest.MapFS) {})
	for _, test := range []struct {
		name   string
		change func(fstest.MapFS)
		same   bool
	}{
		{"nothing", func(fstest.MapFS) {}, true},
		{"a test", func(f fstest.MapFS) { f["protocol/check_test.go"].Data = []byte("package protocol // more\n") }, true},
		{"a test left out, as in a vendor folder", func(f fstest.MapFS) { delete(f, "protocol/check_test.go") }, true},
		{"line ends", func(f fstest.MapFS) { f["protocol/control.go"].Data = []byte("package protocol\r\n") }, true},
		{"a constant", func(f fstest.MapFS) {
			f["handshake/handshake.go"].Data = []byte("package handshake\n\nconst FDReady = 5\n")
		}, false},
		{"a file more", func(f fstest.MapFS) { f["protocol/new.go"] = &fstest.MapFile{} }, false},
		{"a file less", func(f fstest.MapFS) { delete(f, "protocol/control.go") }, false},
		{"another name", func(f fstest.MapFS) {
			f["protocol/c.go"] = f["protocol/control.go"]
			delete(f, "protocol/control.go")
		}, false},
	} {
		if got := tree(test.change); (got == was) != test.same {
			t.Errorf("%s: was %s, is %s", test.name, was, got)
		}
	}
}

func TestDiffer(t *testing.T) {
	for _, test := range []struct{ ours, theirs, want string }{
		{"0.1.0+a", "0.1.0+a", ""},
		{"0.1.0+a", "0.1.0+b", "different sources"},
		{"0.1.0+a", "0.2.0+a", "version 0.1.0, the other 0.2.0"},
		{"0.1.0+a", "0.1.0", "different sources"}, // before builds were compared
	} {
		if got := Differ(test.ours, test.theirs); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s, %s: %q", test.ours, test.theirs, got)
		}
	}
}

// TestLine is what people see, and what tells two builds apart when they compare.
func TestLine(t *testing.T) {
	if got := Line("cubby"); !strings.HasPrefix(got, "cubby "+Version+"+") || !strings.HasSuffix(got, "\n") {
		t.Errorf("got %q", got)
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		Of(internal.Contract)
	}
}
