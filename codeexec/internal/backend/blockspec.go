package backend

import (
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// BlockSpec is how a block runs as a program: its file, and the command that
// takes the file's name as its last argument.
type BlockSpec struct {
	File string
	Mode uint32
	Cmd  string
	Args []string
}

// BuildBlockSpec tells how block number idx runs as a program: code_IDX.py with
// python3, code_IDX.sh with bash, code_IDX.js with node. It fails with
// [codeexec.ErrUnsupportedLanguage] for others.
func BuildBlockSpec(idx int, block codeexec.CodeBlock) (BlockSpec, error) {
	switch language := codeexec.NormalizeLanguage(block.Language); language {
	case codeexec.Python:
		return BlockSpec{File: fmt.Sprintf("code_%d.py", idx), Mode: 0o644, Cmd: "python3"}, nil
	case codeexec.Bash:
		return BlockSpec{File: fmt.Sprintf("code_%d.sh", idx), Mode: 0o755, Cmd: "bash"}, nil
	case codeexec.JavaScript:
		return BlockSpec{File: fmt.Sprintf("code_%d.js", idx), Mode: 0o644, Cmd: "node"}, nil
	default:
		return BlockSpec{}, execerr.Wrap("run block", cubby.CodeUnimplemented,
			fmt.Errorf("%w: %q", codeexec.ErrUnsupportedLanguage, clip.Head(language, maxLanguage)))
	}
}

// unsupported returns the result of a block that did not run because the
// executor does not have its language. Its error is for the model to read.
func unsupported(language string, have []string) codeexec.BlockResult {
	language = clip.Head(language, maxLanguage)
	why := fmt.Sprintf("%q cannot be run here; write the code in one of: %s", language, strings.Join(have, ", "))
	if codeexec.IsDataLanguage(language) {
		why = fmt.Sprintf("%q is data, not code; what can be run here: %s", language, strings.Join(have, ", "))
	}
	return codeexec.BlockResult{
		Language: codeexec.NormalizeLanguage(language), Unsupported: true, ExitCode: 1,
		Error: &codeexec.ExecutionError{Type: "UnsupportedLanguage", Message: why},
	}
}

// maxLanguage bounds what a model wrote as a language before it goes into messages
// and logs, in bytes.
const maxLanguage = 40
