package server

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// ownRef is a reference to a snapshot without the namespace that it may have. E2B's is
// the team's, whose key the client has sent: it adds nothing, and is not shown.
func ownRef(team, ref string) string {
	if team == "" {
		return ref
	}
	return strings.TrimPrefix(ref, team+"/")
}

func snapshot(s host.Snapshot) protocol.Snapshot {
	names := []string{}
	for _, tagged := range s.Names {
		if name, _ := host.SplitRef(tagged); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return protocol.Snapshot{
		SnapshotID: s.Ref(), Names: names, SandboxID: s.SandboxID, FilesOnly: s.FilesOnly, Size: s.Size, CreatedAt: s.CreatedAt,
	}
}

func (s *Server) createSnapshot(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.NewSnapshot
	if !s.decode(w, r, &body, true) {
		return
	}
	made, err := box.Snapshot(r.Context(), host.SnapshotRequest{Name: ownRef(box.Info().TeamID, body.Name), FilesOnly: body.FilesOnly})
	if s.done(w, r, box, "snapshotted", err) {
		writeJSON(w, http.StatusCreated, snapshot(made))
	}
}

// snapshotQuery is what GET /snapshots asks for.
type snapshotQuery struct {
	sandboxID string
	name, tag string // tag is empty for every one of the name
	limit     int
	after     *cursor // nil begins at the newest
}

// parseSnapshots reads the query of a list of snapshots; the error is for the client.
func parseSnapshots(r *http.Request, team string) (snapshotQuery, error) {
	q := r.URL.Query()
	query := snapshotQuery{limit: maxPage}
	if id := q.Get("sandboxID"); id != "" {
		var ok bool
		if query.sandboxID, ok = sandboxID(id); !ok {
			return query, errors.New("Invalid sandbox ID")
		}
	}
	query.name, query.tag, _ = strings.Cut(ownRef(team, q.Get("name")), ":")
	query.tag = strings.ToLower(query.tag)
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return query, errors.New("limit must be a number from 1 on")
		}
		query.limit = min(n, maxPage)
	}
	if text := q.Get("nextToken"); text != "" {
		c, err := parseCursor(text)
		if err != nil {
			return query, err
		}
		if c.ascending {
			return query, errCursor
		}
		query.after = &c
	}
	return query, nil
}

func (q snapshotQuery) matches(s host.Snapshot) bool {
	if q.sandboxID != "" && q.sandboxID != s.SandboxID {
		return false
	}
	if q.name == "" {
		return true
	}
	if q.name == s.ID {
		return q.tag == "" || q.tag == host.DefaultTag
	}
	return slices.ContainsFunc(s.Names, func(tagged string) bool {
		name, tag := host.SplitRef(tagged)
		return name == q.name && (q.tag == "" || tag == q.tag)
	})
}

// isBefore reports whether a snapshot comes before those of the page, newest first.
func (q snapshotQuery) isBefore(s host.Snapshot) bool {
	if q.after == nil {
		return false
	}
	order := q.after.startedAt.Compare(s.CreatedAt)
	return order < 0 || order == 0 && q.after.id >= s.ID
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request, team string) {
	query, err := parseSnapshots(r, team)
	if err != nil {
		writeError(w, fault.InvalidArgument, err.Error(), "")
		return
	}
	all, err := s.host.ListSnapshots(r.Context(), team)
	if err != nil {
		s.fail(w, r, "the snapshots could not be listed", err)
		return
	}
	page := make([]protocol.Snapshot, 0, min(len(all), query.limit))
	var last host.Snapshot
	for _, one := range all {
		if !query.matches(one) || query.isBefore(one) {
			continue
		}
		if len(page) == query.limit {
			w.Header().Set("X-Next-Token", cursor{startedAt: last.CreatedAt, id: last.ID}.String())
			break
		}
		page, last = append(page, snapshot(one)), one
	}
	writeJSON(w, http.StatusOK, page)
}

// deleteTemplate removes a snapshot, which is all that can be removed: a template comes
// with the server.
func (s *Server) deleteTemplate(w http.ResponseWriter, r *http.Request, team string) {
	ref := ownRef(team, r.PathValue("id"))
	switch err := s.host.DeleteSnapshot(r.Context(), team, ref); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, host.ErrNotFound):
		s.ofTemplate(keepTemplate)(w, r, team)
	default:
		s.fail(w, r, "the snapshot could not be deleted", err)
	}
}

// deleteNamespaced is deleteTemplate of a name whose slash was not escaped.
func (s *Server) deleteNamespaced(w http.ResponseWriter, r *http.Request, team string) {
	r.SetPathValue("id", r.PathValue("ns")+"/"+r.PathValue("name"))
	s.deleteTemplate(w, r, team)
}
