package server

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// States of a sandbox as clients know them.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

// stateOf is a state as clients know it: whatever cannot be used now, but can be
// again, is paused.
func stateOf(s host.State) string {
	switch s {
	case host.StatePausing, host.StatePaused, host.StateResuming:
		return statePaused
	}
	return stateRunning
}

const (
	maxPage   = 100
	maxCursor = 512 // characters
	maxFilter = 128 << 10
)

// listQuery is what GET /v2/sandboxes asks for.
type listQuery struct {
	metadata     map[string]string
	running      bool // list those that run
	paused       bool // and those that are paused
	startedAfter time.Time
	template     string
	ascending    bool // oldest first
	limit        int
	after        *cursor // nil begins at the first
}

// cursor is the last sandbox of the page before. On the wire it is
// base64url("<time>__<id>"), and "__asc" before the end in ascending order.
type cursor struct {
	startedAt time.Time
	id        string
	ascending bool
}

const ascendingMark = "asc"

func (c cursor) String() string {
	text := c.startedAt.UTC().Format(time.RFC3339Nano) + "__" + c.id
	if c.ascending {
		text += "__" + ascendingMark
	}
	return base64.URLEncoding.EncodeToString([]byte(text))
}

var errCursor = errors.New("Invalid next token")

// parseCursor reads what String wrote, with or without padding.
func parseCursor(text string) (cursor, error) {
	if len(text) > maxCursor {
		return cursor{}, errCursor
	}
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return cursor{}, errCursor
	}
	parts := strings.Split(string(decoded), "__")
	if len(parts) < 2 || len(parts) > 3 || !isID(parts[1]) {
		return cursor{}, errCursor
	}
	c := cursor{id: parts[1], ascending: len(parts) == 3}
	if c.ascending && parts[2] != ascendingMark {
		return cursor{}, errCursor
	}
	if c.startedAt, err = time.Parse(time.RFC3339Nano, parts[0]); err != nil {
		return cursor{}, errCursor
	}
	return c, nil
}

// parseMetadata reads the filter "k=v&k=v". Clients encode each key and value
// once more than the query string does.
func parseMetadata(text string) (map[string]string, error) {
	bad := errors.New("Error parsing metadata: it must be key=value pairs joined by &, each key and value URL-encoded")
	if text == "" {
		return nil, nil
	}
	if len(text) > maxFilter {
		return nil, bad
	}
	text, err := url.QueryUnescape(text)
	if err != nil {
		return nil, bad
	}
	filter := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		k, v, found := strings.Cut(pair, "=")
		key, err1 := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(v)
		if !found || err1 != nil || err2 != nil {
			return nil, bad
		}
		filter[key] = value
	}
	return filter, nil
}

// parseList reads the query of a list; the error is for the client.
func parseList(q url.Values) (listQuery, error) {
	l := listQuery{running: true, paused: true, limit: maxPage, template: q.Get("template")}
	var err error
	if l.metadata, err = parseMetadata(q.Get("metadata")); err != nil {
		return l, err
	}
	// One value with commas is the form of E2B's clients, several are others'.
	if states := strings.Join(q["state"], ","); states != "" {
		l.running, l.paused = false, false
		for state := range strings.SplitSeq(states, ",") {
			switch state {
			case stateRunning:
				l.running = true
			case statePaused:
				l.paused = true
			default:
				return l, errors.New("state must be running or paused, not " + strconv.Quote(clip.Ellipsis(state, 64)))
			}
		}
	}
	if text := q.Get("startedAfter"); text != "" {
		if l.startedAfter, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return l, errors.New("startedAfter must be a time like 2006-01-02T15:04:05Z")
		}
	}
	switch q.Get("order") {
	case "", "desc":
	case ascendingMark:
		l.ascending = true
	default:
		return l, errors.New("order must be asc or desc")
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return l, errors.New("limit must be a number from 1 on")
		}
		l.limit = min(n, maxPage)
	}
	if text := q.Get("nextToken"); text != "" {
		c, err := parseCursor(text)
		if err != nil {
			return l, err
		}
		if c.ascending != l.ascending {
			return l, errors.New("Invalid next token: it is of a list in the other order")
		}
		l.after = &c
	}
	return l, nil
}

// page picks from a team's sandboxes, newest first, those of the page, and says
// how many that run there are on all pages and which page is next.
func (l listQuery) page(boxes []host.Info) (page []host.Info, running int, next *cursor) {
	if l.ascending {
		boxes = slices.Clone(boxes)
		slices.Reverse(boxes)
	}
	for _, box := range boxes {
		if !l.matches(box) {
			continue
		}
		if stateOf(box.State) == stateRunning {
			running++
		}
		if l.after != nil && !l.comesAfter(box) {
			continue
		}
		if len(page) == l.limit {
			if next == nil {
				last := page[len(page)-1]
				next = &cursor{last.StartedAt, last.ID, l.ascending}
			}
			continue
		}
		page = append(page, box)
	}
	return page, running, next
}

func (l listQuery) matches(box host.Info) bool {
	for k, v := range l.metadata {
		if got, ok := box.Metadata[k]; !ok || got != v {
			return false
		}
	}
	wanted := l.running
	if stateOf(box.State) == statePaused {
		wanted = l.paused
	}
	return wanted && (l.template == "" || l.template == box.TemplateID) && !box.StartedAt.Before(l.startedAfter)
}

// comesAfter reports whether a sandbox is behind the cursor, which may be of one
// that has ended. Ascending is exactly the reverse of descending.
func (l listQuery) comesAfter(box host.Info) bool {
	order := l.after.startedAt.Compare(box.StartedAt)
	if order == 0 {
		order = strings.Compare(box.ID, l.after.id)
	}
	if l.ascending {
		order = -order
	}
	return order > 0
}

func (s *Server) listV2(w http.ResponseWriter, r *http.Request, team string) {
	query, err := parseList(r.URL.Query())
	if err != nil {
		writeError(w, fault.InvalidArgument, err.Error(), "")
		return
	}
	boxes, err := s.host.List(r.Context(), team)
	if err != nil {
		s.fail(w, r, "the sandboxes could not be listed", err)
		return
	}
	page, running, next := query.page(boxes)
	if next != nil {
		w.Header().Set("X-Next-Token", next.String())
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	writeList(w, page)
}

// listV1 has no pages, and no sandboxes that are paused: it is for clients of before
// there were any.
func (s *Server) listV1(w http.ResponseWriter, r *http.Request, team string) {
	filter, err := parseMetadata(r.URL.Query().Get("metadata"))
	if err != nil {
		writeError(w, fault.InvalidArgument, err.Error(), "")
		return
	}
	boxes, err := s.host.List(r.Context(), team)
	if err != nil {
		s.fail(w, r, "the sandboxes could not be listed", err)
		return
	}
	all, _, _ := listQuery{metadata: filter, running: true, limit: len(boxes)}.page(boxes)
	writeList(w, all)
}

func writeList(w http.ResponseWriter, boxes []host.Info) {
	list := make([]protocol.ListedSandbox, 0, len(boxes))
	for _, box := range boxes {
		list = append(list, listed(box))
	}
	writeJSON(w, http.StatusOK, list)
}
