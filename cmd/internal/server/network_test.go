package server

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestLastFlows: with ?last=N only what began in the last N milliseconds is told, and
// what is no such number is refused.
func TestLastFlows(t *testing.T) {
	tn := newTown(t, Config{}, nil)
	box := tn.create()
	for host, ago := range map[string]time.Duration{"old.test": time.Hour, "new.test": 0} {
		tn.host.RecordFlow(egress.Flow{Sandbox: box.ID, Host: host, Time: time.Now().Add(-ago)})
	}
	for query, want := range map[string]struct {
		status, flows int
	}{
		"":                     {200, 2},
		"?last=":               {200, 2},
		"?last=60000":          {200, 1},
		"?last=7200000":        {200, 2},
		"?last=4294967295":     {200, 2},
		"?last=4294967296":     {400, 0},
		"?last=-1":             {400, 0},
		"?last=1s":             {400, 0},
		"?last=1.5":            {400, 0},
		"?last=60000&last=bad": {200, 1},
	} {
		resp, err := tn.client.Get(tn.URL + "/sandboxes/" + box.ID + "/network" + query)
		if err != nil {
			t.Fatal(err)
		}
		var answer protocol.Flows
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want.status || len(answer.Flows) != want.flows {
			t.Errorf("%q: %d with %+v, %v", query, resp.StatusCode, answer.Flows, err)
		}
		if resp.StatusCode == http.StatusOK && want.flows == 1 && answer.Flows[0].Host != "new.test" {
			t.Errorf("%q: %+v", query, answer.Flows)
		}
	}
}
