package template

import (
	"context"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	tc, err := Find(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]Interpreter{"python": tc.Python, "node": tc.Node, "bash": tc.Bash} {
		if in.Missing != "" {
			continue
		}
		r, err := Inspect(context.Background(), in)
		if err != nil || r.Path != in.Path || r.Version == "" || strings.HasPrefix(r.Version, "v") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestInspectFailures(t *testing.T) {
	root := tree(t, map[string]string{
		"fails": "#!/bin/sh\necho broken >&2; exit 3\n",
		"lies":  "#!/bin/sh\nprintf '\\033[31mred'\n",
	})
	for _, tt := range []struct {
		in   Interpreter
		want string
	}{
		{Interpreter{Path: root + "/fails"}, "broken"},
		{Interpreter{Path: root + "/lies"}, "strange version"},
		{Interpreter{Missing: "not here"}, "not here"},
		{Interpreter{Path: root + "/absent"}, "no such file"},
	} {
		if _, err := Inspect(context.Background(), tt.in); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.in, err, tt.want)
		}
	}
}
