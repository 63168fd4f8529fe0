package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// maxSigned bounds what is hashed to find the sandbox of a signed URL, in bytes:
// more than a path and a user can have.
const maxSigned = 8 << 10

// The answers of envd to a request for files without a token.
var (
	invalidSignature = &refusal{code: fault.Unauthenticated, message: "invalid signature"}
	missingSignature = &refusal{code: fault.Unauthenticated, message: "missing signature query parameter"}
	expiredSignature = &refusal{code: fault.Unauthenticated, message: "signature is already expired"}
)

// signature is what stands in the query of a request for files in place of a token.
type signature struct {
	sum     []byte
	common  hash.Hash // of what comes before the token
	expires string    // as it was sent; empty never
}

// readSignature reads the signature of a request, or says why it has none.
func readSignature(r *http.Request) (*signature, *refusal) {
	operation, method := "read", r.Method
	if method == http.MethodOptions { // a browser asks before it uploads
		method = r.Header.Get("Access-Control-Request-Method")
	}
	if method == http.MethodPost {
		operation = "write"
	}
	q := r.URL.Query()
	signed := q.Get("signature")
	if signed == "" {
		return nil, missingSignature
	}
	text, ok := strings.CutPrefix(signed, "v1_")
	got, err := base64.RawStdEncoding.Strict().DecodeString(text)
	prefix, expires := q.Get("path")+":"+operation+":"+q.Get("username")+":", q.Get("signature_expiration")
	if !ok || err != nil || len(got) != sha256.Size || len(prefix) > maxSigned || len(expires) > 20 {
		return nil, invalidSignature
	}
	s := &signature{sum: got, common: sha256.New(), expires: expires}
	s.common.Write([]byte(prefix))
	return s, nil
}

// isBy reports whether it was signed with a token.
func (s *signature) isBy(token string) bool {
	h, err := s.common.(hash.Cloner).Clone()
	if err != nil {
		return false
	}
	h.Write([]byte(token))
	if s.expires != "" {
		h.Write([]byte(":" + s.expires))
	}
	return subtle.ConstantTimeCompare(h.Sum(nil), s.sum) == 1
}

// expired reports whether its time is over, or is none.
func (s *signature) expired() bool {
	if s.expires == "" {
		return false
	}
	until, err := strconv.ParseInt(s.expires, 10, 64)
	return err != nil || time.Now().Unix() > until
}
