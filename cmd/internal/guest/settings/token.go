//go:build linux

package settings

import (
	"crypto/subtle"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// FromHost says whether r carries the host's own token. The server lets nobody
// else ask, and this holds if it ever should: many sandboxes have no other token,
// and their owners know the other. The first /init, which brings the token, can
// only come from the host: nobody else knows of the sandbox yet.
func (s *Store) FromHost(r *http.Request) bool {
	token := s.Load().HostToken
	if token == "" {
		return r.URL.Path == "/init"
	}
	return subtle.ConstantTimeCompare([]byte(token), []byte(r.Header.Get(protocol.HeaderHostToken))) == 1
}

// Authorised says whether r carries the token, if one is set.
func (s *Store) Authorised(r *http.Request) bool {
	token := s.Load().Token
	return token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(r.Header.Get(protocol.HeaderAccessToken))) == 1
}
