//go:build linux

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/pid1"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/cmd/internal/offline"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// maxInit bounds a request, in bytes.
const maxInit = 8 << 20

// uninitialised is what is said before the first /init.
const uninitialised = "the sandbox is not set up yet"

// sealed is what is said between a restore and the /init after it.
const sealed = "the sandbox was just restored, and is not set up yet"

// initialised refuses everything but /init and /health until the host has said by
// /init whose sandbox this is, and again after a restore: the tokens that hold until
// then may be another sandbox's.
func (g *Guest) initialised(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/init" && r.URL.Path != "/health" && g.settings.Load().HostToken == "" {
			reply.Error(w, http.StatusServiceUnavailable, uninitialised)
			return
		}
		if r.URL.Path != "/init" && r.URL.Path != "/health" && g.sealed.Load() {
			reply.Error(w, http.StatusServiceUnavailable, sealed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// handleInit takes what the host says of the sandbox: see protocol.InitRequest.
// It has taken effect once it is answered, as a whole or, with an error, not at
// all. Of several at the same time one comes after the other.
func (g *Guest) handleInit(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(protocol.HeaderVersion, guestversion.Build())
	req, status, err := readInit(w, r)
	if err != nil {
		reply.Error(w, status, err.Error())
		return
	}
	g.initialising.Lock()
	defer g.initialising.Unlock()
	if !g.settings.FromHost(r) { // another has replaced the token that this one came with
		reply.Error(w, http.StatusUnauthorized, reply.Unauthorised)
		return
	}
	if err := g.settings.Check(req); err != nil {
		reply.Error(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := g.apply(g.settings.Load().With(req)); err != nil {
		reply.Error(w, http.StatusInternalServerError, err.Error())
		return
	}
	if req.Restored == protocol.RestoredCopy {
		g.interpreter.DrawAnew(r.Context())
	}
	g.sealed.Store(false)
	g.interpreter.Warm(req.Warm)
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

// apply puts next in the place of the settings that hold, what may fail first: with
// an error those still hold. Whatever else a machine has to be told when it was
// restored belongs here. The caller holds initialising.
func (g *Guest) apply(next *settings.Settings) error {
	now := g.settings.Load()
	if g.settings.Config.Init && next.Limits.PIDs != now.Limits.PIDs {
		if err := pid1.BoundProcesses(next.Limits.PIDs); err != nil {
			return fmt.Errorf("bound the processes: %w", err)
		}
	}
	if g.settings.Config.Init && next.Limits.CPUs != now.Limits.CPUs {
		// Goroutines that wake each other across threads cost calls into the
		// sandbox's kernel: on one processor, a quarter of a stream's time.
		runtime.GOMAXPROCS(min(runtime.NumCPU(), int(math.Ceil(next.Limits.CPUs))))
	}
	if g.settings.Config.Init {
		if err := offline.Change(now.Offline, next.Offline); err != nil {
			return fmt.Errorf("what programs are told of registries: %w", err)
		}
	}
	g.commands.Bound(next.Limits.PIDs)
	g.settings.Set(next)
	return nil
}
