package posixws

import (
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// Whatever a machine lists, what comes of it are safe names that were asked for,
// files of real names below the workspace, and a bounded report.
func FuzzListing(f *testing.F) {
	f.Add("/r\x000 f 5 a\x00/r/out/a\x001 F 3 l\x00/r/work/x\x00", "out/**", "work/*")
	f.Add("/r\x000 X 0 \x00\x000 p 0 pipe\x00/r/out/pipe\x00", "out/**", "**")
	f.Add("/r\x000 f 5 ../../etc/passwd\x00/etc/passwd\x00", "**", "out")
	f.Fuzz(func(t *testing.T, out, one, two string) {
		patterns, err := workdir.ParsePatterns([]string{one, two})
		if err != nil {
			return
		}
		c, err := workdir.NewCollector(codeexec.OutputSpec{Inline: true})
		if err != nil {
			t.Fatal(err)
		}
		found, err := parseListing([]byte(out), patterns.Bases(), patterns, c)
		if err != nil {
			return
		}
		for _, e := range found {
			if workdir.CheckName(e.name) != nil || workdir.CheckName(e.real) != nil || !patterns.Match(e.name) || e.size < 0 {
				t.Errorf("got %+v", e)
			}
		}
		m, err := c.Manifest(t.Context())
		if err != nil || len(m.Left) > 100 {
			t.Errorf("left %d, %v", len(m.Left), err)
		}
		for _, l := range m.Left {
			if strings.ContainsAny(l.Name, "\x1b\n\x00") || l.Reason == "" {
				t.Errorf("left %+v", l)
			}
		}
	})
}

// So are those of a folder, once they are compared.
func FuzzOwnListing(f *testing.F) {
	f.Add("5 1/2/3 a\x007 1/2/3 sub/b c\x00", "**")
	f.Add("5 1/2/3 ../../etc/passwd\x00-1 x y\x00", "*")
	f.Add("99999999999999999999 x y\x00", "a")
	f.Fuzz(func(t *testing.T, out, pattern string) {
		changes, err := workdir.NewChanges([]string{pattern})
		if err != nil {
			return
		}
		seen, _ := parseOwn([]byte(out))
		changes.Begin(nil, true)
		changed, _ := changes.Since(seen)
		for _, s := range changed {
			if workdir.CheckName(s.Name) != nil || s.Size < 0 {
				t.Errorf("got %+v", s)
			}
		}
	})
}
