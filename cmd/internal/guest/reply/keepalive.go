//go:build linux

package reply

import (
	"net/http"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// defaultKeepalive is how often E2B's envd says on a silent stream that it lives,
// unless the client asks for another interval.
const defaultKeepalive = 90 * time.Second

// KeepaliveInterval is how often the caller wants to hear of a silent stream.
func KeepaliveInterval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(protocol.HeaderKeepalive))
	if err != nil || seconds < 1 || seconds > 24*60*60 {
		return defaultKeepalive
	}
	return time.Duration(seconds) * time.Second
}
