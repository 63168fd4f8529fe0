// Package posixws makes workspaces in any machine that can start a program: a
// container, a sandbox, a server's sandbox. It needs sh, tar, find, xargs, head,
// base64, readlink and env there (GNU's, as on Debian), and setsid if programs
// are not started as leaders of their process groups.
//
// The machine is not trusted: it may answer anything, at any length, or not at all.
// That must harm nothing but its own workspaces.
package posixws

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
)

// Machine is where workspaces are. It is safe for concurrent use. Its errors are
// *cubby.Error; a code of sandbox_gone or not_found means that it is lost with
// all its workspaces.
type Machine interface {
	// Start starts a program. ctx bounds the start, and not the program.
	Start(ctx context.Context, p Program) (Process, error)
	// Unpack extracts a tar stream into an absolute folder, which is there, as the
	// user that programs run as. Files get the modes that the stream names, and not the
	// owners; files and links that stand in the way are replaced. [Extract] does it where
	// a program's input can be streamed.
	Unpack(ctx context.Context, folder string, archive io.Reader) error
}

// Program is a program to start. Its environment is the machine's.
type Program struct {
	Argv []string
	// Stdin is the input, nil means none. It is read to its end unless the program
	// ends before; then it is not read any more.
	Stdin io.Reader
	// Interactive leaves the input open for Process.Write; Stdin is nil then.
	Interactive bool
	// TTY gives it a terminal, whose output all goes to Stdout.
	TTY bool
	// Stdout and Stderr take the output as it comes, one Write at a time each.
	// They do not fail and do not keep what they are given.
	Stdout, Stderr io.Writer
}

// Process is a program that was started.
type Process interface {
	// Write sends input to an interactive program.
	Write(p []byte) (int, error)
	// Kill ends the program itself, what it started if the machine can, and makes
	// Wait return soon even if the machine is lost.
	Kill() error
	// Wait returns when the program has ended and all its output was written: its
	// exit code, -1 after a signal. It is called once.
	Wait() (exitCode int, err error)
}

// Extract is most machines' Unpack: it streams the archive to a tar there.
func Extract(ctx context.Context, m Machine, folder string, archive io.Reader) error {
	complaint := session.NewHead(maxComplaint)
	p, err := m.Start(ctx, Program{
		Argv: []string{"tar", "-xpof", "-", "-C", folder}, Stdin: archive, Stdout: io.Discard, Stderr: complaint,
	})
	if err != nil {
		return err
	}
	code, err := wait(ctx, p)
	if err != nil {
		return err
	}
	if code == 0 {
		return nil
	}
	text, _ := complaint.Text()
	e := &cubby.Error{Code: cubby.CodeInternal, Err: fmt.Errorf("tar: exit code %d: %s", code, brief(text))}
	switch {
	case strings.Contains(text, "No space left") || strings.Contains(text, "quota exceeded"):
		e.Code = cubby.CodeNoSpace
	case strings.Contains(text, "Permission denied") || strings.Contains(text, "Read-only file system"):
		e.Code = cubby.CodePermissionDenied
	case strings.Contains(text, "File exists") || strings.Contains(text, "Not a directory") || strings.Contains(text, "Is a directory"):
		e.Code = cubby.CodeConflict // or a folder that is read-only, which looks the same
	case code == 126 || code == 127:
		e.Code, e.Hint = cubby.CodeUnimplemented, "use an image with tar"
	}
	return e
}
