package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestMetrics: a sample each five seconds, and only those of the time that is
// asked for.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		id := a.create(`{"timeout":300}`)
		a.engine.Machines()[0].SetUsage(engine.Usage{Memory: 100 << 20, Cache: 10 << 20, Disk: 5 << 20}, time.Second)
		begun := time.Now().Unix()
		time.Sleep(21 * time.Second)
		synctest.Wait()
		get := func(query string) []protocol.SandboxMetric {
			var list []protocol.SandboxMetric
			a.into(a.call("GET", "/sandboxes/"+id+"/metrics"+query, ""), http.StatusOK, &list)
			return list
		}
		all := get("")
		if len(all) != 5 { // at 0, 5, 10, 15 and 20 seconds
			t.Fatalf("%+v", all)
		}
		last := all[4]
		if last.MemUsed != 100<<20 || last.MemTotal != 512<<20 || last.MemCache != 10<<20 || last.DiskUsed != 5<<20 || last.DiskTotal != 1<<30 ||
			last.CPUCount != 1 || last.CPUUsedPct < 0 || last.CPUUsedPct > 100 || last.Timestamp.Unix() != last.TimestampUnix {
			t.Errorf("%+v", last)
		}
		unix := func(after int64) string { return strconv.FormatInt(begun+after, 10) }
		for query, want := range map[string]int{
			"?start=" + unix(5):                      4,
			"?end=" + unix(5):                        2,
			"?start=" + unix(6) + "&end=" + unix(16): 2,
			"?start=" + unix(1000):                   0,
			"?end=1":                                 0,
		} {
			if got := get(query); len(got) != want || got == nil {
				t.Errorf("%s: %d, want %d", query, len(got), want)
			}
		}
		var many protocol.SandboxesMetrics
		a.into(a.call("GET", "/sandboxes/metrics?sandbox_ids=inone,"+id, ""), http.StatusOK, &many)
		if len(many.Sandboxes) != 1 || many.Sandboxes[id] != last {
			t.Errorf("%+v", many)
		}
	})
}

// TestLogs: what the host did with a sandbox, narrowed as E2B's clients narrow it.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		id := a.create(`{"timeout":300}`)
		begun := time.Now().UnixMilli()
		time.Sleep(time.Second)
		a.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":600}`)
		time.Sleep(time.Second)
		a.call("DELETE", "/sandboxes/"+id, "")
		const created, set, ended = "Sandbox created", "Sandbox timeout set", "Sandbox ended: it was killed"
		later := strconv.FormatInt(begun+1000, 10)
		for _, test := range []struct {
			name  string
			query url.Values
			want  []string
		}{
			{"all", nil, []string{created, set, ended}},
			{"newest first", url.Values{"direction": {"backward"}}, []string{ended, set, created}},
			{"the first", url.Values{"limit": {"1"}}, []string{created}},
			{"the last", url.Values{"limit": {"1"}, "direction": {"backward"}}, []string{ended}},
			{"none", url.Values{"limit": {"0"}}, nil},
			{"from a time", url.Values{"cursor": {later}}, []string{set, ended}},
			{"up to a time", url.Values{"cursor": {later}, "direction": {"backward"}}, []string{set, created}},
			{"of a level", url.Values{"level": {"debug"}}, []string{created, set, ended}},
			{"above a level", url.Values{"level": {"error"}}, nil},
			{"with a word", url.Values{"search": {"timeout"}}, []string{set}},
			{"with a word in another case", url.Values{"search": {"Timeout"}}, nil},
		} {
			var logs protocol.SandboxLogsV2
			a.into(a.call("GET", "/v2/sandboxes/"+id+"/logs?"+test.query.Encode(), ""), http.StatusOK, &logs)
			var got []string
			for _, e := range logs.Logs {
				got = append(got, e.Message)
			}
			if !slices.Equal(got, test.want) || logs.Logs == nil {
				t.Errorf("%s: %q", test.name, got)
			}
		}
		var logs protocol.SandboxLogs
		a.into(a.call("GET", "/sandboxes/"+id+"/logs?start="+later+"&limit=1", ""), http.StatusOK, &logs)
		var line map[string]string // as E2B's command line reads it
		if len(logs.Logs) != 1 || json.Unmarshal([]byte(logs.Logs[0].Line), &line) != nil {
			t.Fatalf("v1: %+v", logs)
		}
		if line["level"] != "info" || line["logger"] == "" || line["message"] != set || line["end_at"] == "" || len(logs.LogEntries) != 1 || logs.LogEntries[0].Fields["end_at"] == "" {
			t.Errorf("v1: %+v", logs)
		}
	})
}

func FuzzLogQuery(f *testing.F) {
	f.Add("cursor=1700000000000&limit=10&direction=backward&level=warn&search=x")
	f.Add("limit=99999999999999999999")
	a := newAPI(f, nil)
	id := a.create("{}")
	all, err := a.host.Logs(f.Context(), "red", id)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		query, err := parseLogs(values, "cursor")
		if err == nil && int64(len(query.pick(all))) > query.limit {
			t.Errorf("%q: more than %d", text, query.limit)
		}
	})
}
