package codeexec

import (
	"fmt"

	"github.com/cubby-sandbox/cubby"
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
// [ErrUnsupportedLanguage] for others.
func BuildBlockSpec(idx int, block CodeBlock) (BlockSpec, error) {
	switch language := NormalizeLanguage(block.Language); language {
	case Python:
		return BlockSpec{File: fmt.Sprintf("code_%d.py", idx), Mode: 0o644, Cmd: "python3"}, nil
	case Bash:
		return BlockSpec{File: fmt.Sprintf("code_%d.sh", idx), Mode: 0o755, Cmd: "bash"}, nil
	case JavaScript:
		return BlockSpec{File: fmt.Sprintf("code_%d.js", idx), Mode: 0o644, Cmd: "node"}, nil
	default:
		return BlockSpec{}, Fail("run block", cubby.CodeUnimplemented, fmt.Errorf("%w: %q", ErrUnsupportedLanguage, clipLanguage(language)))
	}
}
