package datafolder

import (
	"strings"
	"testing"
)

func TestDefault(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		uid  int
		want string
	}{
		{"root", map[string]string{"HOME": "/root", "XDG_DATA_HOME": "/x"}, 0, "/var/lib/cubby"},
		{"a user", map[string]string{"HOME": "/home/u"}, 1000, "/home/u/.local/share/cubby"},
		{"a user with a data home", map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data"}, 1000, "/data/cubby"},
		{"a relative data home", map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "data"}, 1000, "/home/u/.local/share/cubby"},
		{"no home", nil, 1000, ""},
		{"a relative home", map[string]string{"HOME": "u"}, 1000, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Default(func(k string) string { return test.env[k] }, test.uid)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), "--data-dir") {
				t.Errorf("no remedy: %v", err)
			}
		})
	}
}
