package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestHelpNamesTheProgram: who typed `cubby agent` reads of that and not of cubby.
func TestHelpNamesTheProgram(t *testing.T) {
	for _, name := range []string{"cubby agent", "cubby-agent"} {
		var out bytes.Buffer
		root := newRoot(stdio{strings.NewReader(""), &out, &out}, name)
		root.SetArgs([]string{"--help"})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"  " + name + " [flags] [QUESTION]\n", "help for " + name + "\n", "version for " + name + "\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
	}
}
