//go:build linux

package guest

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"runtime"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	maxInit  = 8 << 20 // bytes of a request
	maxToken = 4 << 10 // bytes
	// Beyond these a limit is no limit of any machine; products with them do not
	// overflow.
	maxLimitMB = 1 << 40
	maxLimit   = 1 << 22
)

// uninitialised is what is said before the first /init.
const uninitialised = "the sandbox is not set up yet"

// initialised refuses everything but /init and /health until the host has said by
// /init whose sandbox this is.
func (g *Guest) initialised(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/init" && r.URL.Path != "/health" && g.settings.Load().hostToken == "" {
			writeError(w, http.StatusServiceUnavailable, uninitialised)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fromHost says whether r carries the host's own token. The server lets nobody
// else ask, and this holds if it ever should: many sandboxes have no other token,
// and their owners know the other. The first /init, which brings the token, can
// only come from the host: nobody else knows of the sandbox yet.
func (g *Guest) fromHost(r *http.Request) bool {
	token := g.settings.Load().hostToken
	if token == "" {
		return r.URL.Path == "/init"
	}
	return subtle.ConstantTimeCompare([]byte(token), []byte(r.Header.Get(protocol.HeaderHostToken))) == 1
}

// handleInit takes what the host says of the sandbox: see protocol.InitRequest.
// It has taken effect once it is answered, as a whole or, with an error, not at
// all. Of several at the same time one comes after the other.
func (g *Guest) handleInit(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(protocol.HeaderVersion, guestversion.Build())
	req, status, err := readInit(w, r)
	if err != nil {
		writeError(w, status, err.Error())
		return
	}
	g.initialising.Lock()
	defer g.initialising.Unlock()
	if !g.fromHost(r) { // another has replaced the token that this one came with
		writeError(w, http.StatusUnauthorized, unauthorised)
		return
	}
	if err := g.checkInit(req); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := g.apply(g.settings.Load().with(req)); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	g.warm(req.Warm)
	w.WriteHeader(http.StatusNoContent)
}

// readInit reads a request; an empty body is one that says nothing.
func readInit(w http.ResponseWriter, r *http.Request) (req protocol.InitRequest, status int, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInit))
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &req)
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return req, http.StatusRequestEntityTooLarge, err
	case err != nil:
		return req, http.StatusBadRequest, fmt.Errorf("bad request: %w", err)
	}
	return req, 0, nil
}

// checkInit says whether all of a request can take effect.
func (g *Guest) checkInit(req protocol.InitRequest) error {
	if g.settings.Load().hostToken == "" && req.HostToken == "" {
		return errors.New("the first /init has to bring cubbyHostToken")
	}
	for name, token := range map[string]string{"cubbyHostToken": req.HostToken, "accessToken": req.AccessToken} {
		if len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("%s: no header can carry it", name)
		}
	}
	if err := checkEnv(req.EnvVars); err != nil {
		return err
	}
	if err := checkEnv(identity{req.SandboxID, req.TemplateID}.variables()); err != nil {
		return err
	}
	if _, err := g.account(req.DefaultUser); err != nil {
		return err
	}
	if d := req.DefaultWorkdir; d != "" && (!path.IsAbs(d) || len(d) >= maxPath || strings.Contains(d, "\x00")) {
		return fmt.Errorf("defaultWorkdir '%s' is not an absolute path", cut(d))
	}
	l := req.Limits
	for name, bad := range map[string]bool{
		"memoryMB": l.MemoryMB < 0 || l.MemoryMB > maxLimitMB, "diskMB": l.DiskMB < 0 || l.DiskMB > maxLimitMB,
		"cpus": !(l.CPUs >= 0 && l.CPUs <= maxLimit), "pids": l.PIDs < 0 || l.PIDs > maxLimit,
	} {
		if bad {
			return fmt.Errorf("cubbyLimits: %s is no limit", name)
		}
	}
	return nil
}

// apply puts next in the place of the settings that hold, what may fail first: with
// an error those still hold. Whatever else a machine has to be told when it was
// restored belongs here. The caller holds initialising.
func (g *Guest) apply(next *settings) error {
	now := g.settings.Load()
	if g.cfg.Init && next.limits.PIDs != now.limits.PIDs {
		if err := boundProcesses(next.limits.PIDs); err != nil {
			return fmt.Errorf("bound the processes: %w", err)
		}
	}
	if g.cfg.Init && next.limits.CPUs != now.limits.CPUs {
		// Goroutines that wake each other across threads cost calls into the
		// sandbox's kernel: on one processor, a quarter of a stream's time.
		runtime.GOMAXPROCS(min(runtime.NumCPU(), int(math.Ceil(next.limits.CPUs))))
	}
	g.commands.bound(next.limits.PIDs)
	g.settings.Store(next)
	return nil
}

// warm starts the default kernels of languages that had none so far. One that
// ended is for the next call to replace, which says so.
func (g *Guest) warm(languages []string) {
	for _, name := range languages {
		_, language, err := normalise(name)
		if err != nil {
			continue
		}
		c := g.byDefault(language)
		if !c.tryTake() {
			continue // somebody starts it, or uses it
		}
		if c.process() != nil || c.ended != "" {
			c.give()
			continue
		}
		g.wg.Go(func() {
			defer c.give()
			// Whoever asks for this language first gets the error again.
			_, _, _ = g.ensure(g.ctx, c)
		})
	}
}
