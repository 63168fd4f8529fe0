package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Images keeps what sandboxes are while they are paused, and snapshots: folders by an id.
// Its methods are called concurrently. Errors wrap ErrDamagedImage for an image that is
// not what was written, and have the code fault.NoSpace where there is no room for one.
type Images interface {
	// Create makes an image of what write puts into a folder, beside about. It returns
	// when all of it is on disk, and leaves nothing after an error; what had the id before
	// is replaced or stays. Room for that many bytes is kept from the beginning. like is
	// the id of an image of which much is likely the same, with which it may share room;
	// empty is what was shelved of id.
	Create(ctx context.Context, id string, room int64, like string, about any, write func(dir string) error) error
	// Copy makes an image with the contents of another, beside about, which shares its
	// room. No image has the id yet.
	Copy(ctx context.Context, from, to string, about any) error
	// Describe reads what is beside an image, and how many bytes it takes on disk.
	Describe(id string, about any) (bytes int64, err error)
	// Use calls f with a folder that has the image, verified, which f does not change.
	Use(ctx context.Context, id string, f func(dir string) error) error
	// Scratch makes a folder for an image that is used at once and not kept.
	Scratch(room int64) (dir string, remove func(), err error)
	// Retire takes its name from an image, if there is one: at once and on disk. After
	// an error it has its name.
	Retire(id string) error
	// Shelve takes its name from an image, if there is one, and may keep its contents for
	// the next image of the id to share room with, until that is made or Remove called.
	Shelve(id string) error
	// Remove removes an image and what was shelved of it, if there is any, once nobody
	// uses it.
	Remove(id string) error
	// Has reports whether an image is there and whole, as far as its name tells. An error
	// means that it is unknown.
	Has(id string) (bool, error)
	// SetApart keeps a damaged image for whoever wants to look at it.
	SetApart(id string, why error) error
	// RemoveBut removes all but those.
	RemoveBut(keep map[string]bool) error
	// Usage returns what all images take.
	Usage() (protocol.DiskUsage, error)
}

// ErrDamagedImage means that an image is not what was written.
var ErrDamagedImage = errors.New("the image is damaged or was changed")

// manifest is what the host writes beside an image: what it depends on, which the
// engine does not check, and how its guest is greeted.
type manifest struct {
	TemplateID     string   `json:"template"`
	TemplateDigest string   `json:"templateDigest"`
	Engine         string   `json:"engine"`
	EngineCommit   string   `json:"engineCommit"`
	FilesOnly      bool     `json:"filesOnly,omitempty"`
	Programs       string   `json:"programs,omitempty"` // of Template: that of its guest
	Memory         int64    `json:"memory"`             // bytes that the machine held
	Disk           int64    `json:"disk"`               // bytes that its files took
	Guest          identity `json:"guest"`
}

// identity says whose host token a guest asks for: that of a sandbox's memory.
type identity struct {
	ID     string `json:"id"`
	Memory int    `json:"memory"` // of Instance
}

// hostToken is the token of the host's own requests to a sandbox's guest. Another memory
// of the sandbox has another, so that a guest can tell a copy's from its own.
func (h *Host) hostToken(i identity) string {
	return h.cfg.Key.Token(secret.Host, i.ID, uint32(i.Memory))
}

// manifest describes an image of the machine, which uses u.
func (m *machine) manifest(u engine.Usage, filesOnly bool) manifest {
	eng := m.s.host.cfg.Engine
	return manifest{
		TemplateID: m.template.ID, TemplateDigest: m.template.Digest, Engine: eng.Name(), EngineCommit: eng.Commit(),
		FilesOnly: filesOnly, Memory: u.Memory + u.Overhead, Disk: u.Disk, Guest: m.guestOf,
		Programs: m.programs,
	}
}

// memory is how many bytes a machine of the image takes at once.
func (i manifest) memory(filesOnly bool) int64 {
	if filesOnly {
		return 0
	}
	return i.Memory
}

// origin is what a machine was before it is the sandbox's. The zero value is a boot.
type origin struct {
	restored string
	guest    identity // whose host token its guest asks for; zero: it has none yet
	programs string   // of Template: that of its guest
}

// origin is that of a machine that is made of the image.
func (i manifest) origin(restored string, filesOnly bool) origin {
	if filesOnly {
		return origin{} // another boot
	}
	return origin{restored, i.Guest, i.Programs}
}

// describe reads what an image depends on.
func (h *Host) describe(id string) (manifest, error) {
	if !h.canPause() {
		return manifest{}, cannotPause()
	}
	var m manifest
	_, err := h.cfg.Images.Describe(id, &m)
	return m, imageError(id, err)
}

// templateOf is the template of an image, as it was when the image was made. With
// filesOnly it may be another by now: then only the engine must be the same.
func (h *Host) templateOf(ctx context.Context, teamID string, i manifest, filesOnly bool) (Template, error) {
	t, err := h.cfg.Templates.Resolve(ctx, teamID, i.TemplateID)
	if err != nil {
		return Template{}, err
	}
	eng := h.cfg.Engine
	switch {
	case eng.Name() != i.Engine:
		return Template{}, foreignImage(fmt.Errorf("it needs the engine %s, this is %s", i.Engine, eng.Name()), false)
	case filesOnly:
	case t.Digest != i.TemplateDigest:
		return Template{}, foreignImage(fmt.Errorf("the template %s has changed since", i.TemplateID), true)
	case i.Programs != "" && !slices.Contains(t.Programs, i.Programs):
		return Template{}, foreignImage(errors.New("the guest that it ran is not there any more"), true)
	case eng.Commit() != i.EngineCommit:
		return Template{}, foreignImage(fmt.Errorf("it needs %s %s, this is %s", i.Engine, i.EngineCommit, eng.Commit()), true)
	}
	return t, nil
}

// imageError says in the words of this package why an image could not be made or read.
func imageError(id string, err error) error {
	if err == nil || fault.In(err) != nil {
		return err
	}
	return own(fmt.Errorf("image of %s: %w", id, err))
}

// endIfDamaged ends the sandbox if its image is not what was written, and sets that
// apart for whoever wants to look at it. Its error then says to the client that the
// sandbox has ended, and why.
func (s *Sandbox) endIfDamaged(err error) error {
	if !errors.Is(err, ErrDamagedImage) && !errors.Is(err, engine.ErrDamaged) {
		return err
	}
	if apart := s.host.cfg.Images.SetApart(s.ID, err); apart != nil {
		s.host.log.Error("damaged image of a sandbox cannot be set apart", "sandbox_id", s.ID, "err", apart)
	}
	s.host.log.Error("image of a sandbox is damaged, and was set apart", "sandbox_id", s.ID, "err", err)
	s.beginEnd("its image is damaged: " + err.Error())
	return &fault.Error{Code: fault.NotFound, Err: fmt.Errorf("sandbox %s has ended: its image is damaged: %w", s.ID, err)}
}

// retireImage takes its name from an image, if there is one.
func (h *Host) retireImage(id string) error {
	if h.cfg.Images == nil {
		return nil
	}
	return h.cfg.Images.Retire(id)
}

// shelveImage gives up the image of a sandbox that runs, which the next one will be like.
// It has lost its name already, and removing a gigabyte takes long: only the next pause
// waits for it, whose image has the same name. The caller runs in alone.
func (s *Sandbox) shelveImage() {
	s.calls.Add(1)
	s.shelving.Go(func() {
		defer s.calls.Done()
		if err := s.host.cfg.Images.Shelve(s.ID); err != nil {
			s.host.log.Warn("image of a sandbox cannot be removed", "sandbox_id", s.ID, "err", err)
		}
	})
}

// removeImage removes what there is of an image.
func (h *Host) removeImage(id string) error {
	if h.cfg.Images == nil {
		return nil
	}
	return h.cfg.Images.Remove(id)
}
