//go:build linux || darwin

package skill_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

func TestParse(t *testing.T) {
	for what, tc := range map[string]struct{ text, name, description, body string }{
		"front matter":       {"---\nname: a\ndescription: does a\n---\n\n# A\ntext\n", "a", "does a", "# A\ntext"},
		"none":               {"# Title\n\nDoes a thing.\n", "", "Does a thing.", "# Title\n\nDoes a thing."},
		"empty file":         {"", "", "", ""},
		"CRLF and a mark":    {"\uFEFF---\r\nname: a\r\ndescription: d\r\n---\r\nbody\r\n", "a", "d", "body"},
		"folded text":        {"---\nname: a\ndescription: >\n  one\n  two\n---\n", "a", "one two", ""},
		"not quite YAML":     {"---\nname: a\ndescription: Use when: asked to \"x\n---\nb", "a", "Use when: asked to \"x", "b"},
		"dots at the end":    {"---\nname: a\n...\nd", "a", "d", "d"},
		"a number as name":   {"---\nname: 42\ndescription: d\n---\n", "42", "d", ""},
		"escape codes":       {"---\nname: a\ndescription: \"\\e[31mred\\e[0m\\nline\"\n---\n", "a", "red line", ""},
		"a long description": {"---\nname: a\ndescription: " + strings.Repeat("x", 5000) + "\n---\n", "a", strings.Repeat("x", 1024) + "…", ""},
		"empty front matter": {"---\n---\nbody", "", "body", "body"},
	} {
		s, err := skill.Parse([]byte(tc.text))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if s.Name != tc.name || s.Description != tc.description || s.Body != tc.body {
			t.Errorf("%s: got %q, %q, %q", what, s.Name, s.Description, s.Body)
		}
	}
	for what, text := range map[string]string{
		"no end":             "---\nname: a\n",
		"a bad name":         "---\nname: ../a\ndescription: d\n---\n",
		"a name with blanks": "---\nname: a b\ndescription: d\n---\n",
		"not a mapping":      "---\n- a\n- b\n---\n",
		"a list as name":     "---\nname: [a]\n---\n",
		"bytes":              "---\nname: \xff\n---\n",
		"NUL":                "a\x00b",
		"giant":              strings.Repeat("x", skill.MaxFile+1),
		"giant front matter": "---\nx: " + strings.Repeat("x", 100_000) + "\n---\n",
		// Each line nine times the one before: a billion.
		"aliases of aliases": "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nallowed-tools: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n---\n",
	} {
		if s, err := skill.Parse([]byte(text)); err == nil {
			t.Errorf("%s: got %+v", what, s.Summary)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "---\nname: a\ndescription: d\n---\nbody", "---\r\nname: 'x'\r\n---", "---\nname: a\nallowed-tools: [a, b]\nmetadata: {v: 1}\n---\n",
		"---\n&a [*a]\n---\n", "---\nname: !!binary aGk=\n---\n", "---\n\"description\": |\n  x\n...\n", "---\nname: a\ndescription: a: b\n---\n", "---\n? {}\n: -\n---\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := skill.Parse(b)
		if err != nil {
			return
		}
		if strings.ContainsAny(s.Name, "/\\\x00\n \x1b") || s.Name == ".." || len(s.Name) > 64 {
			t.Errorf("the name is %q", s.Name)
		}
		if strings.ContainsAny(s.Description, "\n\x1b\x00") || len([]rune(s.Description)) > 1025 {
			t.Errorf("the description is %q", s.Description)
		}
		if len(s.Body) > len(b) {
			t.Errorf("the body has %d bytes of %d", len(s.Body), len(b))
		}
	})
}

func TestFolders(t *testing.T) {
	root := folder(t, files{
		"alpha/SKILL.md":               "---\nname: alpha\ndescription: the first\n---\nbody",
		"alpha/docs/a.md":              "doc a",
		"alpha/README.txt":             "read\r\nme",
		"alpha/scripts/run.py":         "pass",
		"alpha/docs/deep/.hidden/h.md": "h",
		"group/beta/SKILL.md":          "no front matter",
		"group/beta/sub/SKILL.md":      "---\nname: sub\n---\npart of beta",
		"twin/SKILL.md":                "---\nname: alpha\ndescription: another\n---\n",
		"broken/SKILL.md":              "---\nname: x\n",
		"bad name/SKILL.md":            "no front matter",
		".hidden/SKILL.md":             "---\nname: hidden\n---\n",
		"not-a-skill/README.md":        "x",
	})
	repo := repository(t, root)
	all := repo.Summaries()
	if len(all) != 2 || all[0] != (skill.Summary{Name: "alpha", Description: "the first"}) || all[1] != (skill.Summary{Name: "beta", Description: "no front matter"}) {
		t.Errorf("got %+v", all)
	}
	var problems []string
	for _, p := range repo.Problems() {
		problems = append(problems, filepath.Base(p.Path))
	}
	if slices.Sort(problems); !slices.Equal(problems, []string{"bad name", "broken", "twin"}) {
		t.Errorf("problems: %v", repo.Problems())
	}
	s, err := repo.Get("alpha")
	if err != nil || s.Body != "body" || !slices.Equal(s.Docs, []string{"README.txt", "docs/a.md"}) {
		t.Errorf("got %+v, %v", s, err)
	}
	if text, err := repo.Doc("alpha", "./README.txt"); err != nil || text != "read\nme" {
		t.Errorf("got %q, %v", text, err)
	}
	if dir, err := repo.Path("beta"); err != nil || dir != filepath.Join(root, "group", "beta") {
		t.Errorf("got %q, %v", dir, err)
	}

	t.Run("bad names", func(t *testing.T) {
		for _, name := range []string{"", ".", "..", "../alpha", "a/b", "/etc", "a\x00", strings.Repeat("a", 65), "ä", "-rf"} {
			_, err := repo.Get(name)
			wantCode(t, name, err, cubby.CodeInvalidArgument)
		}
		_, err := repo.Get("gamma")
		wantCode(t, "gamma", err, cubby.CodeNotFound)
	})
	t.Run("bad documents", func(t *testing.T) {
		for _, doc := range []string{"", ".", "../../x.md", "/etc/x.md", "docs/../../twin/x.md", "scripts/run.py", "SKILL.md", "a\x00.md"} {
			_, err := repo.Doc("alpha", doc)
			wantCode(t, doc, err, cubby.CodeInvalidArgument)
		}
		_, err := repo.Doc("alpha", "docs/none.md")
		wantCode(t, "docs/none.md", err, cubby.CodeNotFound)
	})
	t.Run("a change is seen", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(root, "alpha", "SKILL.md"), []byte("---\nname: alpha\ndescription: changed\n---\nnew body"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := repo.Get("alpha"); err != nil || s.Body != "new body" {
			t.Errorf("got %+v, %v", s, err)
		}
		if err := repo.Refresh(); err != nil || repo.Summaries()[0].Description != "changed" {
			t.Errorf("got %+v, %v", repo.Summaries(), err)
		}
	})
	t.Run("a root that is not there", func(t *testing.T) {
		_, err := skill.NewFolders(filepath.Join(root, "none"))
		wantCode(t, "none", err, cubby.CodeNotFound)
	})
	t.Run("a root that is a skill", func(t *testing.T) {
		if all := repository(t, filepath.Join(root, "group", "beta")).Summaries(); len(all) != 1 || all[0].Name != "beta" {
			t.Errorf("got %+v", all)
		}
	})
}

// Links, pipes and giants in a folder that somebody else made.
func TestHostileFolders(t *testing.T) {
	secret := folder(t, files{"secret.md": "secret", "SKILL.md": "---\nname: outside\ndescription: secret\n---\n"})
	root := folder(t, files{"good/SKILL.md": "good", "good/real.md": "real", "linked/x": "", "piped/x": "", "giant/x": "", "giant/SKILL.md": strings.Repeat("x", skill.MaxFile+1)})
	for _, err := range []error{
		os.Symlink(filepath.Join(secret, "SKILL.md"), filepath.Join(root, "linked", "SKILL.md")),
		os.Symlink(secret, filepath.Join(root, "folder")),
		os.Symlink(filepath.Join(secret, "secret.md"), filepath.Join(root, "good", "stolen.md")),
		os.Symlink("real.md", filepath.Join(root, "good", "inside.md")),
		os.Symlink("..", filepath.Join(root, "good", "up")),
		syscall.Mkfifo(filepath.Join(root, "piped", "SKILL.md"), 0o600),
		syscall.Mkfifo(filepath.Join(root, "good", "pipe.md"), 0o600),
		os.WriteFile(filepath.Join(root, "good", "giant.md"), make([]byte, skill.MaxDoc+1), 0o600),
		os.WriteFile(filepath.Join(root, "good", "bytes.md"), []byte("\xff\xfe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	repo := repository(t, root)
	if all := repo.Summaries(); len(all) != 1 || all[0].Name != "good" {
		t.Errorf("got %+v", all)
	}
	if got := repo.Problems(); len(got) != 4 {
		t.Errorf("problems: %v", got)
	}
	s, err := repo.Get("good")
	if err != nil || !slices.Equal(s.Docs, []string{"bytes.md", "giant.md", "real.md"}) {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, doc := range []string{"stolen.md", "pipe.md", "giant.md", "bytes.md", "up/good/real.md"} {
		if text, err := repo.Doc("good", doc); err == nil || cubby.CodeOf(err) == 0 {
			t.Errorf("%s: got %q, %v", doc, text, err)
		}
	}
	if text, err := repo.Doc("good", "inside.md"); err != nil || text != "real" {
		t.Errorf("a link inside: %q, %v", text, err)
	}
}
