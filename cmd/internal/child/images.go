package child

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/images"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// imageDir is the folder of paused sandboxes and snapshots, in the data folder or, where
// nothing is to outlive the process, in the run folder.
const imageDir = "images"

func (p *private) openImages(opts Options) (host.Images, error) {
	cfg := images.Config{Dir: filepath.Join(opts.RunDir, imageDir), Logger: opts.Logger}
	if p.store != nil {
		cfg.Dir, cfg.Key = filepath.Join(p.store.Dir(), imageDir), p.key
	}
	s, err := images.Open(cfg)
	if err != nil {
		return nil, fault.Within("folder of paused sandboxes", fault.Unavailable, err)
	}
	return imageStore{s, p.kept}, nil
}

// imageStore is a store of images as a host knows it, with the programs that they need.
type imageStore struct {
	*images.Store
	programs *keptPrograms
}

func (s imageStore) Create(ctx context.Context, id string, room int64, about any, write func(dir string) error) error {
	if err := s.programs.keep(); err != nil {
		return err
	}
	_, err := s.Store.Create(ctx, id, images.Options{Reserve: room, About: about}, write)
	return imageError(err)
}

func (s imageStore) Describe(id string, about any) (int64, error) {
	info, err := s.Store.Describe(id, about)
	return info.Disk, imageError(err)
}

func (s imageStore) Use(ctx context.Context, id string, f func(dir string) error) error {
	return imageError(s.Store.Use(ctx, id, f))
}

func (s imageStore) Scratch(room int64) (string, func(), error) {
	dir, remove, err := s.Store.Scratch(room)
	return dir, remove, imageError(err)
}

func (s imageStore) RemoveBut(keep map[string]bool) error {
	return errors.Join(s.Store.RemoveBut(keep), s.programs.removeUnused(s.Store))
}

func (s imageStore) SetApart(id string, why error) error {
	_, err := s.Store.SetApart(id, why)
	return err
}

// imageError says what an error of a store of images means.
func imageError(err error) error {
	if err == nil || fault.In(err) != nil {
		return err
	}
	if _, ok := errors.AsType[*images.CorruptError](err); ok {
		return fmt.Errorf("%w: %w", host.ErrDamagedImage, err)
	}
	if _, ok := errors.AsType[*images.RoomError](err); ok {
		return &fault.Error{Code: fault.NoSpace, Err: err,
			Hint: "remove paused sandboxes or snapshots that are not needed, or have the server's owner give images more room"}
	}
	var key *images.KeyError
	var version *images.VersionError
	if errors.As(err, &key) || errors.As(err, &version) {
		return &fault.Error{Code: fault.Incompatible, Err: err}
	}
	return err
}
