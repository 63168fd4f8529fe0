//go:build linux

package files

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Signature is E2B's for a path of GET or POST /files; expires is unix seconds
// as text, empty for never.
func Signature(path, operation, user, token, expires string) string {
	s := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		s += ":" + expires
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// checkFiles says whether r may read or write a file: by the token or by a
// signature of its path. A token that is sent must fit, signature or not; a
// Signature is checked before its time, so that nobody learns from a forged one.
func (s *Service) checkFiles(r *http.Request, operation string) error {
	q := r.URL.Query()
	expires, until := q.Get("signature_expiration"), int64(0)
	if expires != "" {
		var err error
		if until, err = strconv.ParseInt(expires, 10, 64); err != nil {
			return badRequest("Invalid format for parameter signature_expiration: '%s' is not a number of seconds", reply.Cut(expires))
		}
		expires = strconv.FormatInt(until, 10) // what was signed is the number
	}
	token := s.settings.Load().Token
	if token == "" {
		return nil
	}
	if r.Header.Get(protocol.HeaderAccessToken) != "" {
		if s.settings.Authorised(r) {
			return nil
		}
		return denied("access token present in header but does not match")
	}
	if !q.Has("signature") {
		return denied("missing signature query parameter")
	}
	want := Signature(q.Get("path"), operation, q.Get("username"), token, expires)
	if subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("signature"))) != 1 {
		return denied("invalid signature")
	}
	if expires != "" && until < time.Now().Unix() {
		return denied("signature is already expired")
	}
	return nil
}
