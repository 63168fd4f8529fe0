//go:build linux

package container

import (
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// BenchmarkExecute is one call of ExecuteCode with one block.
func BenchmarkExecute(b *testing.B) {
	for _, bm := range []struct {
		name string
		cfg  Config
		in   codeexec.CodeExecutionInput
	}{
		{"Python", Config{}, python("print(1)")},
		{"Bash", Config{}, bash("echo 1")},
		{"BashByExec", Config{Image: imageShell}, bash("echo 1")},
		{"PythonFresh", Config{Fresh: true}, python("print(1)")},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e := open(b, bm.cfg)
			for b.Loop() {
				if r, err := e.ExecuteCode(b.Context(), bm.in); err != nil || r.Output != "1\n" {
					b.Fatalf("got %+v, %v", r, err)
				}
			}
		})
	}
}
