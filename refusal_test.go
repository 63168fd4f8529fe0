package cubby

import (
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestToldFlows: code that begins after an answer is not told again what was in it, and
// code that ran beside is.
func TestToldFlows(t *testing.T) {
	at := func(seconds int64) protocol.Flow { return protocol.Flow{Time: time.Unix(seconds, 0)} } // by the server's clock
	var told toldFlows
	begun := time.Now()
	if old := told.before(begun, []protocol.Flow{at(1), at(3), at(2)}); !old.IsZero() {
		t.Errorf("the first is not told of flows up to %v", old)
	}
	if old := told.before(begun, []protocol.Flow{at(3), at(4)}); !old.IsZero() {
		t.Errorf("one that ran beside it is not told of flows up to %v", old)
	}
	time.Sleep(time.Millisecond)
	if old := told.before(time.Now(), []protocol.Flow{at(4), at(5)}); !old.Equal(time.Unix(4, 0)) {
		t.Errorf("the next is not told of flows up to %v", old)
	}
}
