//go:build linux

package interpreter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// makeProgram prepares what the kernel is told about the program and its input,
// and writes its file. The error is for the client, with this status.
func (ip *Interpreter) makeProgram(c *codeContext, req protocol.ExecuteRequest) (q kernel.Request, status int, err error) {
	if req.Stdin != nil {
		q.Stdin = os.DevNull
	}
	p := req.Program
	if p == nil {
		return q, 0, nil
	}
	q.Program = &kernel.Program{Name: p.Name, Args: p.Args}
	if p.Name == "" || p.Name == "-" {
		return q, 0, nil
	}
	q.Program.File = filepath.Join(c.Cwd, p.Name)
	f, err := os.OpenFile(q.Program.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return q, 0, nil
	}
	if err == nil {
		if ip.settings.Config.SwitchUser {
			err = f.Chown(int(ip.settings.Config.UID), int(ip.settings.Config.GID))
		}
		_, werr := io.WriteString(f, req.Code)
		err = errors.Join(err, werr, f.Close())
	}
	if err != nil {
		return q, http.StatusInternalServerError, fmt.Errorf("write the program's file: %w", err)
	}
	return q, 0, nil
}
