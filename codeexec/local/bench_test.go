//go:build linux || darwin

package local_test

import (
	"path/filepath"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// What a block costs beside its interpreter: the folder, the pipes, the look for
// what it left behind.
func BenchmarkExecute(b *testing.B) {
	e, err := local.NewUnsafe(b.Context(), local.Config{WorkspaceRoot: filepath.Join(b.TempDir(), "run")})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for _, language := range []string{codeexec.Bash, codeexec.Python} {
		b.Run(language, func(b *testing.B) {
			for b.Loop() {
				if _, err := e.ExecuteCode(b.Context(), codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: language,
					Code: "# nothing"}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
