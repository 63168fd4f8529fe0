//go:build linux

package interpreter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (ip *Interpreter) handleContexts(w http.ResponseWriter, _ *http.Request) {
	ip.byDefault(settings.Python)
	ip.byDefault(settings.JavaScript)
	list := []protocol.Context{}
	ip.contexts.mu.Lock()
	for _, c := range ip.contexts.all {
		list = append(list, c.Context)
	}
	ip.contexts.mu.Unlock()
	reply.JSON(w, http.StatusOK, list)
}

func (ip *Interpreter) handleCreateContext(w http.ResponseWriter, r *http.Request) {
	var req protocol.CreateContextRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil && r.ContentLength != 0 {
		status := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		reply.Text(w, status, "bad request: "+err.Error())
		return
	}
	lang, kernelLanguage, err := normalise(req.Language)
	if err != nil {
		ip.writeNoKernel(w, req.Language, err)
		return
	}
	if req.Shell != "" && (req.Shell != "ipython" || lang != settings.Python) {
		reply.Text(w, http.StatusBadRequest, fmt.Sprintf("unknown shell %q for %s", req.Shell, lang))
		return
	}
	cwd := ip.settings.Workdir()
	if req.Cwd != "" {
		cwd = ip.settings.Resolve(req.Cwd)
		if st, err := os.Stat(cwd); err != nil || !st.IsDir() {
			reply.Text(w, http.StatusBadRequest, fmt.Sprintf("cwd '%s' does not exist", cwd))
			return
		}
	}
	ip.byDefault(settings.Python) // they come first in the list
	ip.byDefault(settings.JavaScript)
	c := ip.newContext(lang, kernelLanguage, cwd, req.Shell)
	c.strict = req.Cwd != ""
	_ = c.take(ip.ctx)
	ip.contexts.mu.Lock()
	full := len(ip.contexts.all) >= maxContexts
	if !full {
		ip.contexts.all = append(ip.contexts.all, c)
	}
	ip.contexts.mu.Unlock()
	if full {
		reply.Text(w, http.StatusTooManyRequests, fmt.Sprintf("a sandbox has at most %d contexts", maxContexts))
		return
	}
	if lang == settings.TypeScript {
		ip.startCompiler()
	}
	_, _, err = ip.ensure(r.Context(), c)
	c.give()
	if err != nil {
		ip.forget(c.ID)
		ip.writeNoKernel(w, lang, err)
		return
	}
	reply.JSON(w, http.StatusOK, c.Context)
}

func (ip *Interpreter) handleRestartContext(w http.ResponseWriter, r *http.Request) {
	c := ip.contextByID(r.PathValue("id"))
	if c == nil {
		reply.Text(w, http.StatusNotFound, fmt.Sprintf("Context %s not found", r.PathValue("id")))
		return
	}
	c.discard() // a cell that runs ends with it
	if err := c.take(r.Context()); err != nil {
		return
	}
	c.discard()
	c.count, c.ended = 0, ""
	_, _, err := ip.ensure(r.Context(), c)
	c.give()
	if err != nil {
		ip.writeNoKernel(w, c.Language, err)
		return
	}
	reply.JSON(w, http.StatusOK, nil)
}

func (ip *Interpreter) handleDeleteContext(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	c := ip.forget(id)
	if c == nil {
		reply.Text(w, http.StatusNotFound, fmt.Sprintf("Context %s not found", id))
		return
	}
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.discard()
	reply.JSON(w, http.StatusOK, nil)
}
