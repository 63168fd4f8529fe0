package server

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestTemplates: the templates there are, as E2B's command line and packages ask
// for them.
func TestTemplates(t *testing.T) {
	a := newAPI(t, nil) // which has the name tpl-1, too
	a.create(`{"templateID":"tpl-1"}`)
	var all []protocol.Template
	a.into(a.call("GET", "/templates?teamID=x", ""), http.StatusOK, &all)
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	uses := map[string]int64{}
	for _, tpl := range all {
		if !uuid.MatchString(tpl.BuildID) || tpl.BuildStatus != "ready" || len(tpl.Names) != 1 || len(tpl.Aliases) != 1 || tpl.CPUCount != 1 ||
			tpl.MemoryMB != 512 || tpl.DiskSizeMB != 1024 || tpl.CreatedAt.IsZero() || (tpl.LastSpawnedAt != nil) != (tpl.SpawnCount > 0) {
			t.Errorf("%+v", tpl)
		}
		uses[tpl.TemplateID] = tpl.SpawnCount
	}
	for name, want := range map[string]int64{"base": 0, "code-interpreter-v1": 0, "tpl-1": 1} {
		if got, ok := uses[name]; !ok || got != want {
			t.Errorf("%s: listed %v, %d uses", name, ok, got)
		}
	}

	t.Run("in pages", func(t *testing.T) {
		var names []string
		for next := ""; ; {
			c := a.call("GET", "/v2/templates?limit=2&nextToken="+strings.ReplaceAll(next, "/", "%2F"), "")
			var page []protocol.Template
			a.into(c, http.StatusOK, &page)
			for _, tpl := range page {
				names = append(names, tpl.TemplateID)
			}
			if next = c.header.Get("X-Next-Token"); next == "" || len(names) > len(all) {
				break
			}
		}
		for i, tpl := range all {
			if len(names) != len(all) || names[i] != tpl.TemplateID {
				t.Fatalf("%q", names)
			}
		}
	})

	for _, test := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/templates/base", 200, `"status":"ready"`},
		{"GET", "/templates/base%3Alatest", 200, `"templateID":"base"`},
		{"GET", "/templates/e2bdev%2Fbase", 200, `"templateID":"e2bdev/base"`},
		{"GET", "/templates/mine", 404, "template 'mine' not found"},
		{"GET", "/templates/base/tags", 200, `"tag":"default"`},
		{"GET", "/templates/mine/tags", 404, "template 'mine' not found"},
		{"GET", "/templates/aliases/code-interpreter-v1", 200, `"templateID":"code-interpreter-v1"`},
		{"GET", "/templates/aliases/team%2Fname%3Atag", 404, "template 'team/name:tag' not found"},
		{"GET", "/templates/aliases/base%3Av9", 404, "tag 'v9' does not exist"},
		{"GET", "/templates/aliases/tags", 404, "template 'tags' not found"},
		{"DELETE", "/templates/mine%3Adefault", 404, "template 'mine:default' not found"},
		{"DELETE", "/templates/base", 403, "comes with the server"},
		{"PATCH", "/v2/templates/base", 403, "comes with the server"},
		{"GET", "/v2/templates?limit=0", 400, "limit"},
		{"GET", "/v2/templates?limit=-1", 400, "limit"},
		{"GET", "/v2/templates?nextToken=mine", 400, "Invalid next token"},
		{"GET", "/templates/" + strings.Repeat("x", 5000), 404, "not found"},
	} {
		if c := a.call(test.method, test.path, ""); c.status != test.status || !strings.Contains(c.body, test.says) || len(c.body) > 2000 {
			t.Errorf("%s %.60s: %d %.300s", test.method, test.path, c.status, c.body)
		}
	}
	if c := a.as("e2b_nobody").call("GET", "/templates", ""); c.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", c.status)
	}
}

// TestWhyItEndedMeanwhile: so is who waits for an answer when the sandbox ends.
func TestWhyItEndedMeanwhile(t *testing.T) {
	begun := make(chan struct{})
	tn := newTown(t, Config{Keys: teamKeys{redKey: "red"}},
		map[int]http.Handler{8000: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
		})})
	box := tn.createFor("red")
	go func() {
		<-begun
		if err := box.Kill(); err != nil {
			t.Error(err)
		}
	}()
	r := tn.to(box, 8000, "GET", "/", nil)
	r.Header.Set(protocol.HeaderAPIKey, redKey)
	if a := tn.do(r); a.status != http.StatusBadGateway || !strings.Contains(string(a.body), "it was killed") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestWhyItEnded: the data plane tells who shows that a sandbox was theirs why it
// ended, and nobody else.
func TestWhyItEnded(t *testing.T) {
	for _, private := range []bool{false, true} {
		cfg := Config{Keys: teamKeys{redKey: "red", blueKey: "blue"}}
		if private {
			cfg.Keys = nil
		}
		tn := newTown(t, cfg, nil)
		box := tn.createFor("red")
		if private {
			box = tn.create()
		}
		if err := box.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			name   string
			header [2]string
			told   bool
		}{
			{"its token", [2]string{protocol.HeaderAccessToken, box.Token}, true},
			{"its team's key", [2]string{protocol.HeaderAPIKey, redKey}, true},
			{"its team's key as a bearer", [2]string{"Authorization", "Bearer " + redKey}, true},
			{"another team's key", [2]string{protocol.HeaderAPIKey, blueKey}, false},
			{"a key that cannot be looked up", [2]string{protocol.HeaderAPIKey, "e2b_unreadable"}, false},
			{"another token", [2]string{protocol.HeaderAccessToken, "0123"}, false},
			{"nothing", [2]string{}, false},
		} {
			r := tn.to(box, 49983, "POST", "/process.Process/Start", nil)
			if test.header[0] != "" {
				r.Header.Set(test.header[0], test.header[1])
			}
			a := tn.do(r)
			told := strings.Contains(string(a.body), "it was killed")
			if a.status != http.StatusBadGateway || told != (test.told || private) || !strings.Contains(string(a.body), `"The sandbox was not found`) {
				t.Errorf("private %v, %s: %d %s", private, test.name, a.status, a.body)
			}
		}
	}
}
