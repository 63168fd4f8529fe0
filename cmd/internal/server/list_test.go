package server

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// list asks for one page.
func (a *api) list(query url.Values) (ids []string, next string) {
	a.t.Helper()
	c := a.call("GET", "/v2/sandboxes?"+query.Encode(), "")
	var page []protocol.ListedSandbox
	a.into(c, http.StatusOK, &page)
	for _, s := range page {
		ids = append(ids, s.SandboxID)
	}
	return ids, c.header.Get("X-Next-Token")
}

// TestPages goes through lists page by page. Some of the sandboxes began at the
// same moment.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		var made []string
		for i := range 25 {
			if i%3 == 0 {
				time.Sleep(time.Second)
			}
			made = append(made, a.create("{}"))
		}
		newest, _ := a.list(nil)
		if len(newest) != 25 || newest[24] == made[24] {
			t.Fatalf("all: %v", newest)
		}
		oldest := slices.Clone(newest)
		slices.Reverse(oldest)
		for order, want := range map[string][]string{"": newest, "desc": newest, "asc": oldest} {
			for _, limit := range []string{"1", "7", "24", "25", "1000"} {
				query := url.Values{"order": {order}, "limit": {limit}}
				var got []string
				for pages := 0; ; pages++ {
					ids, next := a.list(query)
					got = append(got, ids...)
					if query.Set("nextToken", next); next == "" || pages > 25 {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("order %q, limit %s: %v, want %v", order, limit, got, want)
				}
			}
		}
		// Some end between two pages, the cursor's own among them.
		query := url.Values{"limit": {"10"}}
		first, next := a.list(query)
		for _, id := range []string{first[9], newest[10], newest[24]} {
			if c := a.call("DELETE", "/sandboxes/"+id, ""); c.status != http.StatusNoContent {
				t.Fatal(c)
			}
		}
		query.Set("nextToken", next)
		second, next := a.list(query)
		query.Set("nextToken", next)
		third, next := a.list(query)
		if got, want := slices.Concat(second, third), newest[11:24]; !slices.Equal(got, want) || next != "" {
			t.Errorf("while some end: %v, want %v", got, want)
		}
	})
}

// TestFilters: what a list can be narrowed by.
func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		ann := a.create(`{"metadata":{"user":"ann","app":"a&b=c d"}}`)
		time.Sleep(time.Minute)
		between := time.Now()
		time.Sleep(time.Minute)
		bob := a.create(`{"metadata":{"user":"bob"},"templateID":"tpl-1"}`)
		both := []string{bob, ann}
		// twice is how E2B's clients write a filter: each key and value encoded,
		// and all of it again.
		twice := func(pairs ...string) string {
			component := func(s string) string { return url.QueryEscape(strings.ReplaceAll(url.QueryEscape(s), "+", "%20")) }
			var all []string
			for i := 0; i < len(pairs); i += 2 {
				all = append(all, component(pairs[i])+"="+component(pairs[i+1]))
			}
			return strings.Join(all, "&")
		}
		for _, test := range []struct {
			name  string
			query url.Values
			want  []string
		}{
			{"nothing", nil, both},
			{"running", url.Values{"state": {"running"}}, both},
			{"both states", url.Values{"state": {"running,paused"}}, both},
			{"both states, apart", url.Values{"state": {"paused", "running"}}, both},
			{"paused", url.Values{"state": {"paused"}}, nil},
			{"template", url.Values{"template": {"tpl-1"}}, []string{bob}},
			{"another template", url.Values{"template": {"tpl-2"}}, nil},
			{"started after", url.Values{"startedAfter": {between.Format(time.RFC3339Nano)}}, []string{bob}},
			{"started after, another zone", url.Values{"startedAfter": {between.In(time.FixedZone("", 7200)).Format(time.RFC3339)}}, []string{bob}},
			{"metadata", url.Values{"metadata": {"user=ann"}}, []string{ann}},
			{"metadata as E2B's clients write it", url.Values{"metadata": {twice("user", "ann", "app", "a&b=c d")}}, []string{ann}},
			{"metadata, another value", url.Values{"metadata": {twice("user", "ann", "app", "a")}}, nil},
			{"metadata, another key", url.Values{"metadata": {"nobody=ann"}}, nil},
			{"metadata, empty", url.Values{"metadata": {""}}, both},
		} {
			got, next := a.list(test.query)
			if !slices.Equal(got, test.want) || next != "" {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
			}
			c := a.call("GET", "/v2/sandboxes?"+test.query.Encode(), "")
			if total := c.header.Get("X-Total-Running"); total != strconv.Itoa(len(test.want)) {
				t.Errorf("%s: %s in total", test.name, total)
			}
		}
		// v1 knows metadata only.
		var page []protocol.ListedSandbox
		a.into(a.call("GET", "/sandboxes?limit=1&metadata="+url.QueryEscape(twice("user", "bob")), ""), http.StatusOK, &page)
		if len(page) != 1 || page[0].SandboxID != bob || page[0].Metadata["user"] != "bob" {
			t.Errorf("v1: %+v", page)
		}
	})
}

// TestCursorForm: it is E2B's, whose servers hand it to other versions of
// themselves.
func TestCursorForm(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89000, time.UTC)
	for want, c := range map[string]cursor{
		"2026-03-04T05:06:07.000089Z__iabc":      {at, "iabc", false},
		"2026-03-04T05:06:07.000089Z__iabc__asc": {at, "iabc", true},
	} {
		decoded, err := base64.URLEncoding.DecodeString(c.String())
		if err != nil || string(decoded) != want {
			t.Errorf("%q, %v", decoded, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(cursor{time.Now(), "iabc", false}.String())
	f.Add(cursor{time.Now(), "iabc", true}.String())
	f.Add(base64.URLEncoding.EncodeToString([]byte("2026-03-04T05:06:07Z__../x__asc")))
	f.Add("MjAyNi0wMy0wNFQwNTowNjowN1pfX2k")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err != nil {
			return
		}
		if !isID(c.id) {
			t.Errorf("id %q", c.id)
		}
		again, err := parseCursor(c.String())
		if err != nil || !again.startedAt.Equal(c.startedAt) || again.id != c.id || again.ascending != c.ascending {
			t.Errorf("%q: %+v, then %+v, %v", text, c, again, err)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add("user=ann&app=a%2526b")
	f.Add("=&=")
	f.Add("a%3Db")
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := parseMetadata(text)
		if err != nil && filter != nil {
			t.Errorf("%q: %v and %v", text, filter, err)
		}
		// As clients write it, it means the same again.
		var pairs []string
		for k, v := range filter {
			pairs = append(pairs, url.QueryEscape(url.QueryEscape(k))+"="+url.QueryEscape(url.QueryEscape(v)))
		}
		again, err := parseMetadata(strings.Join(pairs, "&"))
		if len(strings.Join(pairs, "&")) > maxFilter {
			return
		}
		if err != nil || len(again) != len(filter) {
			t.Fatalf("%q: %v, then %v, %v", text, filter, again, err)
		}
		for k, v := range filter {
			if got, ok := again[k]; !ok || got != v {
				t.Errorf("%q: %v, then %v", text, filter, again)
			}
		}
	})
}

// FuzzListQuery: no query of a list breaks anything or gets more than a page.
func FuzzListQuery(f *testing.F) {
	f.Add("state=running,paused&limit=3&order=asc")
	f.Add("startedAfter=2026-03-04T05:06:07Z&template=base")
	f.Add("nextToken=" + cursor{time.Now(), "iabc", false}.String())
	a := newAPI(f, nil)
	for range 3 {
		a.create("{}")
	}
	boxes, err := Local(a.host).List(f.Context(), "red")
	if err != nil || len(boxes) != 3 {
		f.Fatal(boxes, err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		query, err := parseList(values)
		if err != nil {
			return
		}
		page, running, next := query.page(boxes)
		if len(page) > query.limit || running > len(boxes) || (next != nil) != (next != nil && len(page) == query.limit) {
			t.Errorf("%q: %d of %d, next %v", text, len(page), running, next)
		}
	})
}

func FuzzSandboxID(f *testing.F) {
	for _, s := range []string{"iabc", "iabc-6532622b", "-", "a-b-c", "i\x00", strings.Repeat("a", 65)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := sandboxID(text)
		if ok && (id == "" || len(id) > maxID || !strings.HasPrefix(text, id) || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "") {
			t.Errorf("%q is taken for %q", text, id)
		}
		if !ok && id != "" {
			t.Errorf("%q: %q", text, id)
		}
	})
}

// FuzzCreate: no body breaks anything, and each is answered with a sandbox or with
// E2B's JSON for an error that is the client's.
func FuzzCreate(f *testing.F) {
	for _, s := range []string{
		`{"templateID":"base","timeout":300,"metadata":{"a":"b"},"envVars":{"A":"b"},"secure":true}`,
		`{"network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}","rules":{"a":[]}}}`,
		`{"autoPause":true,"autoResume":{"enabled":true},"volumeMounts":[{}],"iam":{"tokens":{"a":{}}},"mcp":{}}`,
		`{"cubbyLimits":{"memoryMB":64,"cpus":0.5,"diskMB":1,"pids":8},"cubbyWarm":["python"]}`,
		`null`, `[]`, `{"timeout":1e3}`, `{"timeout":-9223372036854775809}`, "{\"metadata\":{\"\xff\":\"\xff\"}}",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	a := newAPI(f, nil)
	f.Fuzz(func(t *testing.T, body string, v2 bool) {
		b := *a
		b.t = t
		path := "/sandboxes"
		if v2 {
			path = "/v2/sandboxes"
		}
		c := b.call("POST", path, body)
		switch c.status {
		case http.StatusCreated:
			var s protocol.Sandbox
			b.into(c, http.StatusCreated, &s)
			if got := b.call("DELETE", "/sandboxes/"+s.SandboxID, ""); got.status != http.StatusNoContent {
				t.Errorf("%v", got)
			}
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusNotImplemented:
		default:
			t.Errorf("%d %s", c.status, c.body)
		}
	})
}

// FuzzBodies: the same for what is sent about a sandbox.
func FuzzBodies(f *testing.F) {
	for _, s := range []string{`{"timeout":60}`, `{"timeout":0}`, `{"duration":3600}`, `{"timeout":null}`, ``, `{"timeout":[]}`} {
		f.Add(s)
	}
	a := newAPI(f, nil)
	f.Fuzz(func(t *testing.T, body string) {
		b := *a
		b.t = t
		id := b.create("{}")
		for _, path := range []string{"/refreshes", "/connect", "/timeout"} {
			switch c := b.call("POST", "/sandboxes/"+id+path, body); c.status {
			case http.StatusOK, http.StatusNoContent, http.StatusBadRequest:
			default:
				t.Errorf("%s: %d %s", path, c.status, c.body)
			}
		}
		b.call("DELETE", "/sandboxes/"+id, "")
	})
}
