package pkgflag

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const script = `#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = [
#   "requests>=2.31",  # with a comment
#   'rich',
# ]
#
# [tool.x]
# y = 1
# ///
import requests
`

func TestFiles(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{"requirements.txt", "# comment\n\nnumpy==1.26 # why\r\nrequests[socks] \\\n  >=2\nsix==1.0 \\\n    --hash=sha256:00ff\n",
			[]string{"numpy==1.26", "requests[socks]    >=2", "six==1.0      --hash=sha256:00ff"}, ""},
		{"bom.txt", "\ufeffnumpy", []string{"numpy"}, ""},
		{"empty.txt", "", nil, ""},
		{"script.py", script, []string{"requests>=2.31", "rich"}, ""},
		{"crlf.py", strings.ReplaceAll(script, "\n", "\r\n"), []string{"requests>=2.31", "rich"}, ""},
		{"none.py", "import os\n", nil, "it has no block"},
		{"nolist.py", "# /// script\n# requires-python = \">=3\"\n# ///\n", nil, ""},
		{"twice.py", script + script, nil, "two blocks"},
		{"broken.py", "# /// script\n# dependencies = [\n# ///\n", nil, "# /// script"},
		{"type.py", "# /// script\n# dependencies = 3\n# ///\n", nil, "dependencies"},
		{"option.txt", "--index-url https://evil.test\n", nil, "it is an option of pip's"},
		{"other.txt", "-r other.txt\n", nil, "it is an option of pip's"},
		{"url.txt", "x @ https://evil.test/x.whl\n", nil, "it is a URL"},
		{"path.txt", "./x\n", nil, "it is a path"},
		{"hidden.py", "# /// script\n# dependencies = [\"--pre\"]\n# ///\n", nil, "dash"},
		{"binary", "a\x00b", nil, "no text"},
		{"big.txt", strings.Repeat("#\n", maxFile), nil, "more than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), test.name)
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			f := Flags{files: []string{path}}
			p, err := f.Packages()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "-r "+path) || strings.Contains(err.Error(), "Packages.") {
					t.Errorf("%v, want %s", err, test.err)
				}
				return
			}
			if err != nil || !slices.Equal(p.Pip, test.want) {
				t.Errorf("%q, %v", p.Pip, err)
			}
		})
	}
	for _, test := range []struct {
		flags Flags
		want  string
	}{
		{Flags{pip: []string{"-e"}}, `--pip "-e": it begins with a dash`},
		{Flags{npm: []string{"a/b"}}, `--npm "a/b": it is no package's name`},
		{Flags{build: true}, "--build is about packages"},
		{Flags{files: []string{"/no/such"}}, "-r /no/such: open"},
	} {
		if _, err := test.flags.Packages(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}
