package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/images"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// imageDir is the folder of paused sandboxes and snapshots, in the data folder or, where
// nothing is to outlive the process, in the run folder.
const imageDir = "images"

func (p *private) openImages(opts Options) (host.Images, error) {
	cfg := images.Config{Dir: filepath.Join(opts.RunDir, imageDir), Passing: true, Logger: opts.Logger, Budget: opts.DiskBudget}
	if p.store != nil {
		cfg.Dir, cfg.Key, cfg.Passing = filepath.Join(p.store.Dir(), imageDir), p.key, false
	}
	if opts.ImagesKey != nil {
		plain := filepath.Join(opts.RunDir, plainDir)
		if err := mountPlain(plain); err != nil {
			return nil, fault.Within("folder of plaintext", fault.Unavailable, err)
		}
		cfg.Cipher, cfg.Plain = opts.ImagesKey, plain
	}
	s, err := images.Open(cfg)
	if err != nil {
		return nil, fault.Within("folder of paused sandboxes", fault.Unavailable, err)
	}
	return imageStore{s, p.kept}, nil
}

// plainDir, in the run folder, has encrypted images while they are written or used.
const plainDir = "plain"

// mountPlain makes a folder of memory, which is seen in this process's mount namespace
// alone and ends with it. It is never swapped out where the kernel can promise that (6.4
// or newer): else who reads the swap device reads what was there.
func mountPlain(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	const flags, options = unix.MS_NOSUID | unix.MS_NODEV, "mode=700"
	err := unix.Mount("cubby", dir, "tmpfs", flags, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("cubby", dir, "tmpfs", flags, options)
	}
	return os.NewSyscallError("mount", err)
}

// imageStore is a store of images as a host knows it, with the programs that they need.
type imageStore struct {
	*images.Store
	programs *keptPrograms
}

func (s imageStore) Create(ctx context.Context, id string, room int64, like string, about any, write func(dir string) error) error {
	if err := s.programs.keep(); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = &images.RoomError{Where: imageDir}
		}
		return imageError(err)
	}
	_, err := s.Store.Create(ctx, id, images.Options{Reserve: room, Like: like, About: about}, write)
	return imageError(err)
}

func (s imageStore) Copy(_ context.Context, from, to string, about any) error {
	_, err := s.Store.Copy(from, to, about)
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

func (s imageStore) Usage() (protocol.DiskUsage, error) {
	u, err := s.Store.Usage()
	return protocol.DiskUsage{Images: u.Images, Reserved: u.Reserved, Damaged: u.Corrupt, Free: u.Free, Budget: u.Budget}, err
}

// imageError says what an error of a store of images means.
func imageError(err error) error {
	if err == nil || fault.In(err) != nil {
		return err
	}
	if _, ok := errors.AsType[*images.CorruptError](err); ok {
		return fmt.Errorf("%w: %w", host.ErrDamagedImage, err)
	}
	if room, ok := errors.AsType[*images.RoomError](err); ok {
		// The client is not told of the machine's folders.
		const mib = 1 << 20
		why := errors.New("there is no room for an image")
		if room.Need > 0 {
			why = fmt.Errorf("there is no room for an image of %d MiB, %d MiB are left", (room.Need+mib-1)/mib, room.Free/mib)
		}
		return &fault.Error{Code: fault.NoSpace, Err: why,
			Hint: "remove paused sandboxes or snapshots that are not needed, or have the server's owner give images more room"}
	}
	var key *images.KeyError
	var version *images.VersionError
	if errors.As(err, &key) || errors.As(err, &version) {
		return &fault.Error{Code: fault.Incompatible, Err: err}
	}
	return err
}
