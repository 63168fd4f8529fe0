package host

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// DefaultTemplate is what an empty template name means.
const DefaultTemplate = "base"

// knownTemplates are the names that mean the machine's own toolchain: E2B's
// default template, its code interpreter's, and its builder's default image.
var knownTemplates = []string{DefaultTemplate, "code-interpreter-v1", "e2bdev/base", "e2bdev/code-interpreter"}

// TemplateError says which template, or which tag of it, there is not. It wraps
// ErrUnknownTemplate.
type TemplateError struct{ Message string }

func (e *TemplateError) Error() string { return e.Message }
func (e *TemplateError) Unwrap() error { return ErrUnknownTemplate }

// TemplateInfo describes a template under one of its names.
type TemplateInfo struct {
	Name      string
	Limits    protocol.Limits // of a sandbox that asks for none
	CreatedAt time.Time       // UTC: the toolchain is composed when the server starts
	Uses      int64           // sandboxes made from it since then
	UsedAt    time.Time       // UTC, of the last of them; zero if there was none
}

// templateUse counts the sandboxes of a template.
type templateUse struct {
	count int64
	last  time.Time
}

// Templates returns every template that a sandbox can be made from, in a fixed
// order: the built-in names, then the server's own.
func (h *Host) Templates() []TemplateInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	infos := make([]TemplateInfo, 0, len(h.templates))
	for _, name := range h.templates {
		used := h.used[name]
		infos = append(infos, TemplateInfo{name, defaultLimits, h.started, used.count, used.last})
	}
	return infos
}

// Template returns the template that a name with or without a tag means, or a
// *TemplateError.
func (h *Host) Template(ref string) (TemplateInfo, error) {
	name, err := h.template(ref)
	if err != nil {
		return TemplateInfo{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	used := h.used[name]
	return TemplateInfo{name, defaultLimits, h.started, used.count, used.last}, nil
}

// template returns the name that a sandbox is listed under.
func (h *Host) template(ref string) (string, error) {
	name, tag, tagged := strings.Cut(ref, ":")
	if name == "" && !tagged {
		return DefaultTemplate, nil
	}
	if !slices.Contains(h.templates, name) {
		return "", &TemplateError{fmt.Sprintf("template '%s' not found", clip(ref))}
	}
	// The toolchain has no versions beside the one that is there.
	if tagged && tag != "default" && tag != "latest" {
		return "", &TemplateError{fmt.Sprintf("tag '%s' does not exist for template '%s'", clip(tag), name)}
	}
	return name, nil
}

// templateNames are the built-in names and a server's own, each once.
func templateNames(aliases []string) []string {
	names := slices.Clone(knownTemplates)
	for _, name := range aliases {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
