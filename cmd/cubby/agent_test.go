package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/version"
)

func TestFindAgent(t *testing.T) {
	program := func(name string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	beside, onPath, named, none := program(agentProgram), program(agentProgram), program("mine"), t.TempDir()
	for _, tt := range []struct{ what, dir, path, named, want string }{
		{"named", filepath.Dir(beside), filepath.Dir(onPath), named, named},
		{"beside", filepath.Dir(beside), filepath.Dir(onPath), "", beside},
		{"on PATH", none, filepath.Dir(onPath), "", onPath},
	} {
		t.Setenv("PATH", tt.path)
		got, err := findAgent(filepath.Join(tt.dir, "cubby"), tt.named)
		if err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.what, got, err, tt.want)
		}
	}
	t.Setenv("PATH", none)
	for named, want := range map[string]string{"": "make build", filepath.Join(none, "gone"): "CUBBY_AGENT"} {
		if _, err := findAgent(filepath.Join(none, "cubby"), named); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", named, err, want)
		}
	}
}

func TestAgentEnv(t *testing.T) {
	got := agentEnv([]string{"A=b", "CUBBY_AGENT_FOR=0.0.1"}, "/bin/cubby")
	if want := []string{"A=b", "CUBBY_AGENT_FOR=" + version.Build(), "CUBBY_BINARY=/bin/cubby"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := agentEnv([]string{"CUBBY_BINARY=/mine"}, "/bin/cubby"); slices.Contains(got, "CUBBY_BINARY=/bin/cubby") {
		t.Errorf("%q", got)
	}
}
