package host

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Templates says what sandboxes can be made from. Its methods are called
// concurrently.
type Templates interface {
	// Resolve returns the template that a team's reference means: a name, with or
	// without a tag. The empty one means DefaultTemplate. The error has the
	// code fault.NotFound if there is no such template; any other means that it is
	// unknown.
	Resolve(ctx context.Context, teamID, ref string) (Template, error)
	// List returns every template of a team, in a fixed order.
	List(ctx context.Context, teamID string) ([]Template, error)
}

// Template is a root filesystem that sandboxes boot from, with what runs inside.
type Template struct {
	ID     string // the name that sandboxes made from it are listed under
	Digest string // changes with what an image of a paused sandbox depends on
	// Programs are the ids of the guests in Root, of which it boots the first: an image
	// needs the one that it was made with.
	Programs []string
	Root     string // folder that becomes "/"
	Guest    []string
	Env      []string        // of the guest, the first process
	Limits   protocol.Limits // of a sandbox that asks for none; zero fields mean the host's
	// CreatedAt is when it was made, in UTC; zero means with the host.
	CreatedAt time.Time
}

// DefaultTemplate is what an empty template name means.
const DefaultTemplate = "base"

// knownTemplates are the names that mean the machine's own toolchain: E2B's
// default template, its code interpreter's, and its builder's default image.
var knownTemplates = []string{DefaultTemplate, "code-interpreter-v1", "e2bdev/base", "e2bdev/code-interpreter"}

// toolchain is Templates that are all one, the machine's own toolchain.
type toolchain struct {
	template Template
	names    []string
}

// Toolchain returns Templates that are all t, the machine's own toolchain: under the
// names that E2B's clients use, and then the server's own. Every team has them.
func Toolchain(t Template, aliases ...string) Templates {
	names := slices.Clone(knownTemplates)
	for _, name := range aliases {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return toolchain{t, names}
}

func (t toolchain) Resolve(_ context.Context, _, ref string) (Template, error) {
	name, tag, tagged := strings.Cut(ref, ":")
	if name == "" && !tagged {
		return t.as(DefaultTemplate), nil
	}
	if !slices.Contains(t.names, name) {
		return Template{}, unknownTemplate("template '%s' not found", clip.Ellipsis(ref, maxQuoted))
	}
	// The toolchain has no versions beside the one that is there.
	if tagged && tag != "default" && tag != "latest" {
		return Template{}, unknownTemplate("tag '%s' does not exist for template '%s'", clip.Ellipsis(tag, maxQuoted), name)
	}
	return t.as(name), nil
}

func (t toolchain) List(context.Context, string) ([]Template, error) {
	all := make([]Template, 0, len(t.names))
	for _, name := range t.names {
		all = append(all, t.as(name))
	}
	return all, nil
}

func (t toolchain) as(name string) Template {
	named := t.template
	named.ID = name
	return named
}

// TemplateInfo describes a template under one of its names.
type TemplateInfo struct {
	Name      string
	Limits    protocol.Limits // of a sandbox that asks for none
	CreatedAt time.Time       // UTC
	Uses      int64           // sandboxes made from it since this host began
	UsedAt    time.Time       // UTC, of the last of them; zero if there was none
}

// templateUse counts the sandboxes of a template.
type templateUse struct {
	count int64
	last  time.Time
}

// Templates returns every template that a team can make a sandbox from, in a fixed
// order.
func (h *Host) Templates(ctx context.Context, teamID string) ([]TemplateInfo, error) {
	all, err := h.cfg.Templates.List(ctx, teamID)
	if err != nil {
		return nil, err
	}
	infos := make([]TemplateInfo, 0, len(all))
	for _, t := range all {
		infos = append(infos, h.templateInfo(t))
	}
	return infos, nil
}

// Template returns the template that a team's name for it means, with or without a
// tag, or an error with the code fault.NotFound.
func (h *Host) Template(ctx context.Context, teamID, ref string) (TemplateInfo, error) {
	t, err := h.cfg.Templates.Resolve(ctx, teamID, ref)
	if err != nil {
		return TemplateInfo{}, err
	}
	return h.templateInfo(t), nil
}

func (h *Host) templateInfo(t Template) TemplateInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	used := h.used[t.ID]
	info := TemplateInfo{t.ID, t.limits(), h.started, used.count, used.last}
	if !t.CreatedAt.IsZero() {
		info.CreatedAt = t.CreatedAt
	}
	return info
}

// limits are those of a sandbox that asks for none.
func (t Template) limits() protocol.Limits {
	limits := defaultLimits
	overlay(&limits, t.Limits)
	return limits
}
