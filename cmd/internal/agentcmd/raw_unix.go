//go:build unix

package agentcmd

import (
	"os"

	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// raw has a terminal hand over each key as it comes.
func raw(in *os.File, _ terminal.File) (restore func() error, err error) {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	return func() error { return term.Restore(int(in.Fd()), state) }, nil
}
