//go:build unix

package agentcmd

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby/cmd/internal/lineedit"
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

// addSignals adds what a terminal and a shell tell, and ask, with signals.
func addSignals(s *lineedit.Screen) {
	s.Watch = func() (resized, resumed <-chan os.Signal, stop func()) {
		size, on := make(chan os.Signal, 1), make(chan os.Signal, 1)
		signal.Notify(size, syscall.SIGWINCH)
		signal.Notify(on, syscall.SIGCONT)
		return size, on, func() {
			signal.Stop(size)
			signal.Stop(on)
		}
	}
	// With what it shares a pipe with, as a terminal does for Ctrl-Z.
	s.Suspend = func() error { return syscall.Kill(0, syscall.SIGTSTP) }
}
