//go:build linux

package reply

import (
	"net/http"
	"strconv"
	"time"
)

// defaultKeepalive is how often E2B's envd says on a silent stream that it lives,
// and headerKeepalive the header with which a client asks for another interval, in
// seconds.
const (
	defaultKeepalive = 90 * time.Second
	headerKeepalive  = "Keepalive-Ping-Interval"
)

// KeepaliveInterval is how often the caller wants to hear of a silent stream.
func KeepaliveInterval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(headerKeepalive))
	if err != nil || seconds < 1 || seconds > 24*60*60 {
		return defaultKeepalive
	}
	return time.Duration(seconds) * time.Second
}
