package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Names of what every template here has one of: its state and its tag.
const (
	buildReady = "ready"
	defaultTag = "default"
)

// buildID names the one build of a template. E2B's clients want a UUID; this is
// one of version 8, made of the name.
func buildID(template string) string {
	b := sha256.Sum256([]byte("cubby template " + template))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// lastUse is null for a template that was never used.
func lastUse(t host.TemplateInfo) *time.Time {
	if t.UsedAt.IsZero() {
		return nil
	}
	return &t.UsedAt
}

func template(t host.TemplateInfo) protocol.Template {
	return protocol.Template{
		TemplateID: t.Name, BuildID: buildID(t.Name), BuildStatus: buildReady, BuildCount: 1,
		Names: []string{t.Name}, Aliases: []string{t.Name}, Public: true,
		CPUCount: host.CPUCount(t.Limits), MemoryMB: t.Limits.MemoryMB, DiskSizeMB: t.Limits.DiskMB, EnvdVersion: protocol.EnvdVersion,
		CreatedAt: t.CreatedAt, UpdatedAt: t.CreatedAt, SpawnCount: t.Uses, LastSpawnedAt: lastUse(t),
	}
}

// listTemplates answers all templates: clients of the first version expect no
// pages.
func (s *Server) listTemplates(w http.ResponseWriter, r *http.Request, team string) {
	all, err := s.host.Templates(r.Context(), team)
	if err != nil {
		s.fail(w, r, "the templates could not be listed", err)
		return
	}
	writeTemplates(w, all)
}

// listTemplatesV2 answers a page of the templates; the token of the next one is
// the name of the last template.
func (s *Server) listTemplatesV2(w http.ResponseWriter, r *http.Request, team string) {
	q := r.URL.Query()
	limit, err := number(q, "limit", maxPage)
	if err != nil || limit == 0 {
		writeError(w, fault.InvalidArgument, "limit must be a number from 1 on", "")
		return
	}
	all, err := s.host.Templates(r.Context(), team)
	if err != nil {
		s.fail(w, r, "the templates could not be listed", err)
		return
	}
	if after := q.Get("nextToken"); after != "" {
		i := slices.IndexFunc(all, func(t host.TemplateInfo) bool { return t.Name == after })
		if i < 0 {
			writeError(w, fault.InvalidArgument, errCursor.Error(), "")
			return
		}
		all = all[i+1:]
	}
	if n := int(min(limit, maxPage)); n < len(all) {
		all = all[:n]
		w.Header().Set("X-Next-Token", all[n-1].Name)
	}
	writeTemplates(w, all)
}

func writeTemplates(w http.ResponseWriter, infos []host.TemplateInfo) {
	list := make([]protocol.Template, 0, len(infos))
	for _, t := range infos {
		list = append(list, template(t))
	}
	writeJSON(w, http.StatusOK, list)
}

// partOfTemplate answers GET /templates/{id}/tags and GET /templates/aliases/{name},
// which overlap in a way that a ServeMux does not tell apart.
func (s *Server) partOfTemplate(w http.ResponseWriter, r *http.Request, team string) {
	id, part := r.PathValue("id"), r.PathValue("part")
	switch {
	case id == "aliases":
		r.SetPathValue("id", part)
		s.ofTemplate(templateAlias)(w, r, team)
	case part == "tags":
		s.ofTemplate(templateTags)(w, r, team)
	default:
		writeNotYet(w, "building templates")
	}
}

// templateHandler serves a request about a template that there is.
type templateHandler func(w http.ResponseWriter, r *http.Request, t host.TemplateInfo)

// ofTemplate finds the template that the path names, or answers as E2B does.
func (s *Server) ofTemplate(h templateHandler) teamHandler {
	return func(w http.ResponseWriter, r *http.Request, team string) {
		t, err := s.host.Template(r.Context(), team, r.PathValue("id"))
		if err != nil {
			s.fail(w, r, "the template could not be found", err)
			return
		}
		h(w, r, t)
	}
}

func getTemplate(w http.ResponseWriter, _ *http.Request, t host.TemplateInfo) {
	all := template(t)
	writeJSON(w, http.StatusOK, protocol.TemplateWithBuilds{
		TemplateID: all.TemplateID, Names: all.Names, Aliases: all.Aliases, Public: all.Public,
		CreatedAt: all.CreatedAt, UpdatedAt: all.UpdatedAt, SpawnCount: all.SpawnCount, LastSpawnedAt: all.LastSpawnedAt,
		Builds: []protocol.TemplateBuild{{
			BuildID: all.BuildID, Status: all.BuildStatus, CPUCount: all.CPUCount, MemoryMB: all.MemoryMB, DiskSizeMB: all.DiskSizeMB,
			EnvdVersion: all.EnvdVersion, CreatedAt: all.CreatedAt, UpdatedAt: all.UpdatedAt, FinishedAt: all.CreatedAt,
		}},
	})
}

func templateAlias(w http.ResponseWriter, _ *http.Request, t host.TemplateInfo) {
	writeJSON(w, http.StatusOK, protocol.TemplateAlias{TemplateID: t.Name, Public: true})
}

func templateTags(w http.ResponseWriter, _ *http.Request, t host.TemplateInfo) {
	writeJSON(w, http.StatusOK, []protocol.TemplateTag{{Tag: defaultTag, BuildID: buildID(t.Name), CreatedAt: t.CreatedAt}})
}

// keepTemplate refuses to remove or change what comes with the server.
func keepTemplate(w http.ResponseWriter, _ *http.Request, t host.TemplateInfo) {
	writeError(w, fault.PermissionDenied, "template "+strconv.Quote(t.Name)+" comes with the server and cannot be changed or deleted", "")
}
