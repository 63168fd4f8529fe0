//go:build linux

package files

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	// maxSources bounds the files that one call composes.
	maxSources = 10_000
	// maxComposeBody bounds the call, in bytes.
	maxComposeBody = 8 << 20
)

// Compose is POST /files/compose: it makes one file of several, in their
// order, and removes those. The file appears whole or not at all; until it does,
// nothing is removed.
func (s *Service) Compose(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxComposeBody)).Decode(&req); err != nil {
		var tooLarge *http.MaxBytesError
		if !errors.As(err, &tooLarge) {
			err = badRequest("invalid request body: %v", err)
		}
		answerError(w, err)
		return
	}
	switch {
	case len(req.Sources) == 0:
		reply.Error(w, http.StatusBadRequest, "source_paths must not be empty")
		return
	case len(req.Sources) > maxSources:
		answerError(w, badRequest("more than %d source_paths: compose parts of them first", maxSources))
		return
	case req.Destination == "":
		reply.Error(w, http.StatusBadRequest, "destination is required")
		return
	}
	a, err := s.settings.Account(req.Username)
	if err != nil {
		reply.Error(w, http.StatusUnauthorized, err.Error())
		return
	}
	e, err := s.compose(r.Context(), a, req.Sources, req.Destination)
	if err != nil {
		answerError(w, err)
		return
	}
	reply.JSON(w, http.StatusOK, e)
}

func (s *Service) compose(ctx context.Context, a settings.Account, sources []string, destination string) (e protocol.EntryInfo, err error) {
	name, err := a.Path(destination)
	if err != nil {
		return e, badRequest("%v", err)
	}
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		return e, badRequest("path '%s' is a directory", name)
	}
	names := make([]string, len(sources))
	for i, source := range sources {
		if names[i], err = a.Path(source); err != nil {
			return e, badRequest("%v", err)
		}
		if names[i] == name {
			return e, badRequest("path '%s' is the destination and a source", name)
		}
		f, err := openRegular(names[i], syscall.O_RDONLY, 0)
		if err != nil {
			return e, err
		}
		f.Close()
	}
	if err := s.makeDirs(a, path.Dir(name)); err != nil {
		return e, err
	}
	temporary := path.Join(path.Dir(name), ".cubby-compose-"+rand.Text())
	f, err := openRegular(temporary, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return e, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	err = s.concatenate(ctx, a, f, names)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return e, err
	}
	if err := os.Rename(temporary, name); err != nil {
		return e, err
	}
	for _, source := range names {
		if rerr := os.Remove(source); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) && err == nil {
			err = &httpError{http.StatusInternalServerError, "the file is made, but a source remains: " + rerr.Error()}
		}
	}
	return protocol.EntryInfo{Path: name, Name: path.Base(name), Type: "file"}, err
}

// concatenate writes the contents of the named files to f, as the user's.
func (s *Service) concatenate(ctx context.Context, a settings.Account, f *os.File, names []string) error {
	if s.settings.Config.SwitchUser {
		if err := f.Chown(a.UID, a.GID); err != nil {
			return err
		}
	}
	buf := make([]byte, copyBuffer)
	for _, name := range names {
		from, err := openRegular(name, syscall.O_RDONLY, 0)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, &untilDone{ctx, from}, buf)
		from.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// untilDone reads until nobody waits any more.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.from.Read(p)
}
