package cubby_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

// TestPackageNames: what is no package's name is refused before anything is asked, and
// what the registries' documents have as names is taken.
func TestPackageNames(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked++ }))
	defer srv.Close()
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []cubby.Packages{
		{Pip: []string{
			"numpy", "Django==5.*", "requests[socks,security] >= 2.31, <3", "zope.interface", "a", "ruamel_yaml!=0.1", "x (>=1,<2)",
			`tomli>=2; python_version < "3.11" and sys_platform != 'win32'`, "torch==2.1.0+cpu", "x~=1.0", "x===1!2.0",
			"six==1.16.0 --hash=sha256:1e61c37477a1626458e36f7b1d82aa5c9b094fa4802892072e49de9c60c4c926 --hash=sha256:00",
		}},
		{Npm: []string{"left-pad", "@types/node@20", "lodash@^4.17.0", "a@>=1 <2", "b@latest", "JSONStream", "lodash.merge@4.x || 5"}},
	} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for name, why := range map[string]string{
		"":                             "empty",
		" ":                            "empty",
		"-e .":                         "dash",
		"--index-url=http://evil.test": "dash",
		" -r x":                        "dash",
		"https://evil.test/x.whl":      "URL",
		"x @ https://evil.test/x.whl":  "URL",
		"git+ssh:x":                    "URL",
		"./x":                          "path",
		"/tmp/x":                       "path",
		"..":                           "path",
		"x-1.0-py3-none-any.whl":       "path or an archive",
		"x.tar.gz":                     "path or an archive",
		"x\ny":                         "no package's name",
		"x --index-url=http":           "no package's name",
		"x; a --global-option=b":       "no package's name",
		"x ${HOME}":                    "no package's name",
		"x==1 # y":                     "no package's name",
		"x==1\x00":                     "no package's name",
		"x@file:y":                     "no package's name",
		"npm:x":                        "no package's name",
		"ann/repository":               "no package's name",
		"x\\":                          "no package's name",
		strings.Repeat("x", 5000):      "too long",
	} {
		for _, p := range []cubby.Packages{{Pip: []string{name}}, {Npm: []string{name}}} {
			_, err := c.Create(t.Context(), cubby.WithPackages(p))
			if cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), why) {
				t.Errorf("%q: %v, want %s", name, err, why)
			}
		}
	}
	if err := (cubby.Packages{Pip: make([]string, 1001)}).Check(); err == nil || !strings.Contains(err.Error(), "1001 packages") {
		t.Errorf("%v", err)
	}
	if asked != 0 {
		t.Errorf("%d requests", asked)
	}
}
