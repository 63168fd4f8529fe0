package server

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	maxMetricsOf = 100 // sandboxes of one GET /sandboxes/metrics
	maxLogs      = 1000
	maxSearch    = 256 // bytes
)

func metric(s host.Sample) protocol.SandboxMetric {
	return protocol.SandboxMetric{
		Timestamp: s.At.Truncate(time.Millisecond), TimestampUnix: s.At.Unix(), CPUCount: s.CPUCount,
		CPUUsedPct: math.Round(s.CPUPercent*100) / 100,
		MemUsed:    s.MemUsed, MemTotal: s.MemTotal, MemCache: s.MemCache, DiskUsed: s.DiskUsed, DiskTotal: s.DiskTotal,
	}
}

// number reads a whole number from 0 on out of a query; byDefault if it is not
// there.
func number(q url.Values, name string, byDefault int64) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New(name + " must be a whole number from 0 on")
	}
	return n, nil
}

// metrics answers what was measured between start and end, both in Unix seconds
// and included.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, box Sandbox) {
	q := r.URL.Query()
	start, err1 := number(q, "start", 0)
	end, err2 := number(q, "end", math.MaxInt64)
	if err := errors.Join(err1, err2); err != nil {
		writeError(w, fault.InvalidArgument, err.Error(), "")
		return
	}
	if start > end {
		writeError(w, fault.InvalidArgument, "start time cannot be after end time", "")
		return
	}
	list := []protocol.SandboxMetric{}
	for _, sample := range box.Samples() {
		if at := sample.At.Unix(); at >= start && at <= end {
			list = append(list, metric(sample))
		}
	}
	writeJSON(w, http.StatusOK, list)
}

// newestMetrics answers for several sandboxes at a time; those that are not the
// caller's are left out, as those that are not there.
func (s *Server) newestMetrics(w http.ResponseWriter, r *http.Request, team string) {
	joined := strings.Join(r.URL.Query()["sandbox_ids"], ",")
	if joined == "" {
		writeError(w, fault.InvalidArgument, "sandbox_ids is missing", "")
		return
	}
	ids := strings.Split(joined, ",")
	if len(ids) > maxMetricsOf {
		writeError(w, fault.InvalidArgument, "Too many sandboxes requested, maximum is "+strconv.Itoa(maxMetricsOf), "")
		return
	}
	answer := protocol.SandboxesMetrics{Sandboxes: map[string]protocol.SandboxMetric{}}
	for _, text := range ids {
		id, ok := sandboxID(text)
		if !ok {
			writeError(w, fault.InvalidArgument, "Invalid sandbox ID", "")
			return
		}
		box, err := s.host.Of(r.Context(), team, id)
		if err != nil {
			continue
		}
		if samples := box.Samples(); len(samples) > 0 {
			answer.Sandboxes[id] = metric(samples[len(samples)-1])
		}
	}
	writeJSON(w, http.StatusOK, answer)
}

// logQuery is what a request for logs asks for.
type logQuery struct {
	from     int64 // Unix milliseconds, included
	limit    int64
	backward bool // newest first, from before from
	level    int  // index of logLevels
	search   string
}

// logLevels are E2B's, least first.
var logLevels = []string{"debug", "info", "warn", "error"}

// parseLogs reads the query of logs; the name of the time differs by version.
func parseLogs(q url.Values, timeName string) (logQuery, error) {
	l := logQuery{search: q.Get("search")}
	switch q.Get("direction") {
	case "", "forward":
	case "backward":
		l.backward = true
	default:
		return l, errors.New("direction must be forward or backward")
	}
	var begin int64
	if l.backward {
		begin = math.MaxInt64
	}
	var err error
	if l.from, err = number(q, timeName, begin); err != nil {
		return l, err
	}
	if l.limit, err = number(q, "limit", maxLogs); err != nil {
		return l, err
	}
	l.limit = min(l.limit, maxLogs)
	if level := q.Get("level"); level != "" {
		if l.level = slices.Index(logLevels, level); l.level < 0 {
			return l, errors.New("level must be debug, info, warn or error")
		}
	}
	if len(l.search) > maxSearch {
		return l, errors.New("search must have at most 256 bytes")
	}
	return l, nil
}

// pick returns the entries that are asked for.
func (l logQuery) pick(all []host.LogEntry) []protocol.SandboxLogEntry {
	picked := []protocol.SandboxLogEntry{}
	if l.backward {
		all = slices.Clone(all)
		slices.Reverse(all)
	}
	for _, e := range all {
		at := e.At.UnixMilli()
		switch {
		case int64(len(picked)) >= l.limit:
			return picked
		case l.backward && at > l.from, !l.backward && at < l.from,
			slices.Index(logLevels, e.Level) < l.level, !strings.Contains(e.Message, l.search):
			continue
		}
		fields := e.Fields
		if fields == nil {
			fields = map[string]string{}
		}
		picked = append(picked, protocol.SandboxLogEntry{Timestamp: e.At, Level: e.Level, Message: e.Message, Fields: fields})
	}
	return picked
}

// logs answers what the host did with a sandbox, for some time also after its
// end.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, team, timeName string) ([]protocol.SandboxLogEntry, bool) {
	id, ok := sandboxID(r.PathValue("id"))
	if !ok {
		writeError(w, fault.InvalidArgument, "Invalid sandbox ID", "")
		return nil, false
	}
	query, err := parseLogs(r.URL.Query(), timeName)
	if err != nil {
		writeError(w, fault.InvalidArgument, err.Error(), "")
		return nil, false
	}
	all, err := s.host.Logs(r.Context(), team, id)
	if err != nil {
		writeGone(w, id, err)
		return nil, false
	}
	return query.pick(all), true
}

// logger is who wrote the entries of a log; E2B's command line can filter by it.
const logger = "cubby"

// logLine is an entry as the JSON object that E2B's command line expects in each
// line.
func logLine(e protocol.SandboxLogEntry) string {
	line := maps.Clone(e.Fields)
	line["level"], line["logger"], line["message"] = e.Level, logger, e.Message
	text, err := json.Marshal(line)
	if err != nil { // a map of strings has none
		return "{}"
	}
	return string(text)
}

func (s *Server) logsV1(w http.ResponseWriter, r *http.Request, team string) {
	entries, ok := s.logs(w, r, team, "start")
	if !ok {
		return
	}
	lines := make([]protocol.SandboxLog, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, protocol.SandboxLog{Timestamp: e.Timestamp, Line: logLine(e)})
	}
	writeJSON(w, http.StatusOK, protocol.SandboxLogs{Logs: lines, LogEntries: entries})
}

func (s *Server) logsV2(w http.ResponseWriter, r *http.Request, team string) {
	entries, ok := s.logs(w, r, team, "cursor")
	if ok {
		writeJSON(w, http.StatusOK, protocol.SandboxLogsV2{Logs: entries})
	}
}
