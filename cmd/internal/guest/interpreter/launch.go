//go:build linux

package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernelproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

const (
	startTime   = 30 * time.Second // for a kernel to be ready
	maxContexts = 64
)

// writeNoKernel answers that there is no kernel for a call in that language. E2B's
// packages show the text of a 404 and of nothing else.
func (ip *Interpreter) writeNoKernel(w http.ResponseWriter, language string, err error) {
	switch {
	case errors.Is(err, errMissing), errors.Is(err, errUnknown):
		reply.Text(w, http.StatusNotFound, ip.noLanguage(language, err))
	case errors.Is(err, errRefused):
		reply.Text(w, http.StatusBadRequest, err.Error())
	case errors.As(err, new(deletedError)):
		reply.Text(w, http.StatusNotFound, err.Error())
	default:
		reply.Text(w, http.StatusInternalServerError, err.Error())
	}
}

// deletedError says that there is no context of that id.
type deletedError string

func (id deletedError) Error() string { return fmt.Sprintf("Context %s not found", string(id)) }

// errMissing is what an error wraps when the interpreter is not there.
var errMissing = errors.New("not installed")

// errRefused is what an error wraps when the code's user may not enter the folder
// of a context.
var errRefused = errors.New("permission denied")

// ensure returns the context's kernel and starts one if there is none. fresh is
// how the one before ended, if one did. The caller has the turn.
func (ip *Interpreter) ensure(ctx context.Context, c *codeContext) (k *kernelproc.Process, fresh string, err error) {
	if k = c.process(); k != nil {
		return k, "", nil
	}
	c.mu.Lock()
	old := c.proc
	c.mu.Unlock()
	if old != nil && c.ended == "" {
		c.ended = old.DescribeEnd() // it ended between two cells
	}
	k, err = ip.launch(ctx, c)
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.proc = k
	}
	c.mu.Unlock()
	if gone {
		k.Stop()
		<-k.Ended
		return nil, "", deletedError(c.ID)
	}
	fresh, c.ended = c.ended, ""
	return k, fresh, nil
}

// launch starts a kernel for c and waits until it is ready.
func (ip *Interpreter) launch(ctx context.Context, c *codeContext) (*kernelproc.Process, error) {
	path := ip.settings.Config.Interpreters[c.kernel]
	if path == "" {
		what := ip.settings.Config.Missing[c.kernel]
		if what == "" {
			what = "install it where the sandbox's files come from"
		}
		return nil, fmt.Errorf("%s is %w: %s", c.kernel, errMissing, what)
	}
	var command kernel.Command
	switch c.kernel {
	case settings.Python:
		command = kernel.Python(path, ip.settings.Config.KernelDir, c.shell == "ipython")
	case settings.JavaScript:
		command = kernel.Node(path, ip.settings.Config.KernelDir)
	case settings.Bash:
		command = kernel.Bash(path, ip.settings.Config.KernelDir)
	}
	cwd := c.Cwd
	if st, err := os.Stat(cwd); err != nil || !st.IsDir() {
		cwd = ip.settings.Config.Home // the code removed it
	}
	copies := ip.copies.Load()
	k, err := kernelproc.Start(ip.settings, ip.children, &ip.wg, command, cwd)
	if errors.Is(err, fs.ErrPermission) && cwd != ip.settings.Config.Home {
		if c.strict {
			return nil, fmt.Errorf("cwd '%s': %w", cwd, errRefused)
		}
		k, err = kernelproc.Start(ip.settings, ip.children, &ip.wg, command, ip.settings.Config.Home) // the code has closed it
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k.Copies.Store(copies)
	limit, timer := ip.machine.After(startTime)
	defer timer.Stop()
	select {
	case <-k.Ready:
		c.strict = false
		return k, nil
	case <-k.Ended:
		err = fmt.Errorf("the %s kernel ended at once (%s)", c.kernel, reaper.Describe(k.Status))
	case <-limit:
		err = fmt.Errorf("the %s kernel was not ready after %s", c.kernel, startTime)
	case <-ctx.Done():
		err = ctx.Err()
	case <-ip.ctx.Done():
		err = ip.ctx.Err()
	}
	k.Stop()
	if tail := strings.TrimSpace(k.LastWords()); tail != "" {
		err = fmt.Errorf("%w: %s", err, strings.ToValidUTF8(tail, "\uFFFD"))
	}
	return nil, err
}
