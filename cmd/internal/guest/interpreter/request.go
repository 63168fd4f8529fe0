//go:build linux

package interpreter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	maxSource      = 64 << 20
	maxExecuteBody = 2*maxSource + 1<<20 // as JSON, which escapes
	maxWaiting     = 256 << 20           // bytes of source of all calls that run or wait
	maxName        = 255                 // bytes of a program's name, as of a file's
	maxArgs        = 2 << 20             // bytes of a program's arguments, about what Linux allows
)

// readExecute reads and checks a request; its error is for the client, with this
// status.
func readExecute(w http.ResponseWriter, r *http.Request) (req protocol.ExecuteRequest, status int, err error) {
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxExecuteBody {
		body.Grow(int(n) + bytes.MinRead) // growing step by step takes twice the memory, which is the code's
	}
	_, err = body.ReadFrom(http.MaxBytesReader(w, r.Body, maxExecuteBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return req, http.StatusRequestEntityTooLarge, fmt.Errorf("the request is over the limit of %d MiB", maxExecuteBody>>20)
	case err != nil:
		return req, http.StatusBadRequest, err
	}
	if err := json.Unmarshal(body.Bytes(), &req); err != nil {
		return req, http.StatusBadRequest, fmt.Errorf("bad request: %w", err)
	}
	if len(req.Code) > maxSource {
		return req, http.StatusRequestEntityTooLarge, fmt.Errorf("the source is over the limit of %d MiB: upload data as a file", maxSource>>20)
	}
	if strings.IndexByte(req.Code, 0) >= 0 {
		return req, http.StatusBadRequest, errors.New("source contains NUL bytes: it is not text")
	}
	if err := settings.CheckEnv(req.EnvVars); err != nil {
		if errors.As(err, new(settings.BadVariable)) {
			return req, http.StatusBadRequest, err
		}
		return req, http.StatusRequestEntityTooLarge, err
	}
	if req.ContextID != "" && req.Language != "" {
		return req, http.StatusBadRequest, errors.New("give context_id or language, not both")
	}
	if req.Stdin != nil && !validInput(req.Stdin.ID) {
		return req, http.StatusBadRequest, errors.New("the input's id is not up to 64 letters, digits and dashes")
	}
	if p := req.Program; p != nil {
		if strings.ContainsAny(p.Name, "/\x00") || p.Name == "." || p.Name == ".." || len(p.Name) > maxName {
			return req, http.StatusBadRequest, fmt.Errorf("bad name of a program %.64q", p.Name)
		}
		size := 0
		for _, a := range p.Args {
			if strings.IndexByte(a, 0) >= 0 {
				return req, http.StatusBadRequest, errors.New("an argument contains a NUL byte")
			}
			if size += len(a) + 1; size > maxArgs {
				return req, http.StatusBadRequest, fmt.Errorf("the arguments are over the limit of %d MiB", maxArgs>>20)
			}
		}
	}
	return req, 0, nil
}

func headerNumber(r *http.Request, name string, otherwise int64) (int64, error) {
	s := r.Header.Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s: %q is not a positive number", name, s)
	}
	return n, nil
}
