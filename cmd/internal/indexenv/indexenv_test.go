package indexenv

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name       string
		env        map[string]string
		told       []string
		registries map[string][]string
	}{
		{"nothing", map[string]string{"PATH": "/bin"}, nil, map[string][]string{}},
		{"an index, with a password", map[string]string{"PIP_INDEX_URL": "https://ann:hunter2@pypi.corp.example/simple"},
			[]string{"PIP_INDEX_URL=https://pypi.corp.example/simple"}, map[string][]string{"pypi": {"pypi.corp.example:443"}}},
		{"one more leaves PyPI", map[string]string{"PIP_EXTRA_INDEX_URL": "https://x:hunter2@a.example/s  http://b.example:81/"},
			[]string{"PIP_EXTRA_INDEX_URL=https://a.example/s http://b.example:81/"},
			map[string][]string{"pypi": {"a.example:443", "b.example:81", "pypi.org:443", "files.pythonhosted.org:443"}}},
		{"both", map[string]string{"PIP_INDEX_URL": "https://a.example/", "PIP_EXTRA_INDEX_URL": "https://a.example/2 https://b.example/"},
			[]string{"PIP_INDEX_URL=https://a.example/", "PIP_EXTRA_INDEX_URL=https://a.example/2 https://b.example/"},
			map[string][]string{"pypi": {"a.example:443", "b.example:443"}}},
		{"npm, and Go's list", map[string]string{"npm_config_registry": "http://host.cubby.internal:4873", "GOPROXY": "https://u:hunter2@go.example,direct"},
			[]string{"npm_config_registry=http://host.cubby.internal:4873", "GOPROXY=https://go.example,direct"},
			map[string][]string{"npm": {"host.cubby.internal:4873"}, "go": {"go.example:443"}}},
		{"without a URL", map[string]string{"PIP_TRUSTED_HOST": "a.example"}, []string{"PIP_TRUSTED_HOST=a.example"}, map[string][]string{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Read(func(name string) string { return test.env[name] })
			if err != nil || !slices.Equal(s.Env, test.told) || !reflect.DeepEqual(s.Registries, test.registries) {
				t.Errorf("%+v, %v", s, err)
			}
			if strings.Contains(strings.Join(s.Env, " "), "hunter2") {
				t.Errorf("a password is told: %q", s.Env)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for value, why := range map[string]string{
		"http://localhost:8080/hunter2":              "host.cubby.internal",
		"http://127.3.2.1/hunter2":                   "host.cubby.internal",
		"http://[::1]:80/hunter2":                    "host.cubby.internal",
		"file:///hunter2":                            "URL of an index",
		"hunter2":                                    "URL of an index",
		"https://":                                   "URL of an index",
		"https://a b:hunter2@x/":                     "URL of an index",
		"https://a/" + strings.Repeat("x", maxValue): "too long",
	} {
		_, err := Read(func(name string) string {
			if name == "PIP_INDEX_URL" {
				return value
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), why) || !strings.HasPrefix(err.Error(), "PIP_INDEX_URL: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
