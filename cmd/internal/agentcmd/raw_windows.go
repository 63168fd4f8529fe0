package agentcmd

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby/cmd/internal/lineedit"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// raw has a console hand over each key as it comes, and obey escape sequences.
func raw(in *os.File, out terminal.File) (restore func() error, err error) {
	console := windows.Handle(out.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(console, &mode); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING); err != nil {
		return nil, err
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, errors.Join(err, windows.SetConsoleMode(console, mode))
	}
	return func() error {
		return errors.Join(term.Restore(int(in.Fd()), state), windows.SetConsoleMode(console, mode))
	}, nil
}

// discard forgets what was typed on a console and has not been read.
func discard(in *os.File) error { return windows.FlushConsoleInputBuffer(windows.Handle(in.Fd())) }

// addSignals adds nothing: a console tells nobody of its size, and stops no program for
// Ctrl-Z.
func addSignals(*lineedit.Screen) {}
