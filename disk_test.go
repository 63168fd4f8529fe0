package cubby_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

func TestDisk(t *testing.T) {
	var asked string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		if r.Method == http.MethodDelete {
			io.WriteString(w, `{"count":2,"bytes":3}`)
			return
		}
		io.WriteString(w, `{"paused":{"count":1,"bytes":10},"snapshots":{"count":2,"bytes":20},"all":{"images":5,"reserved":1,"damaged":2,"free":7,"budget":9}}`)
	})
	d, err := c.Disk(t.Context())
	if err != nil || asked != "GET /cubby/disk" || d.Paused != (cubby.Held{Count: 1, Bytes: 10}) || d.Snapshots != (cubby.Held{Count: 2, Bytes: 20}) ||
		*d.All != (cubby.DiskUsage{Images: 5, Reserved: 1, Damaged: 2, Free: 7, Budget: 9}) {
		t.Errorf("asked %q: %+v, %v", asked, d, err)
	}
	for opts, want := range map[cubby.PruneOptions]string{
		{}: "DELETE /cubby/disk?age=0&all=false",
		{Snapshots: true, OlderThan: 1500 * time.Millisecond}: "DELETE /cubby/disk?age=2&all=true",
	} {
		if went, err := c.Prune(t.Context(), opts); err != nil || asked != want || went != (cubby.Held{Count: 2, Bytes: 3}) {
			t.Errorf("asked %q, want %q: %v, %v", asked, want, went, err)
		}
	}
	other := client(t, http.NotFound)
	_, get := other.Disk(t.Context())
	_, prune := other.Prune(t.Context(), cubby.PruneOptions{})
	for _, err := range []error{get, prune} {
		if cubby.CodeOf(err) != cubby.CodeUnimplemented {
			t.Errorf("on another server: %s", fmt.Sprint(err))
		}
	}
}
