//go:build linux

package files

import (
	"strconv"
	"strings"
)

// acceptsGzip says how a body goes to a client with these Accept-Encoding headers:
// compressed if it likes gzip at least as well as what it names of the plain form
// (RFC 9110, 12.5.3). Without ok neither form will do.
func acceptsGzip(accept []string) (gzipped, ok bool) {
	const unsaid = -1.0
	quality := map[string]float64{"gzip": unsaid, "identity": unsaid, "*": unsaid}
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(part, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if name == "x-gzip" {
				name = "gzip"
			}
			if _, ours := quality[name]; ours {
				quality[name] = parseQuality(params)
			}
		}
	}
	zip, plain, any := quality["gzip"], quality["identity"], quality["*"]
	if zip == unsaid && plain == 0 {
		zip = any // "*" stands for gzip only where plain is refused
	}
	if plain == unsaid && any == 0 {
		plain = 0
	}
	switch {
	case zip > 0 && zip >= plain:
		return true, true
	case plain == 0:
		return false, false
	}
	return false, true
}

// parseQuality returns the weight of parameters like "q=0.5"; what is not one
// counts as 1.
func parseQuality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
	}
	return 1
}
