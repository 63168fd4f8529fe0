//go:build linux

// Package reply writes the answers of the guest's handlers, in the two forms that E2B's
// services have.
package reply

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/asciijson"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Unauthorised is what envd says to a call without the token.
const Unauthorised = "unauthorized access, please provide a valid access token or method signing if supported"

// JSON answers with v.
func JSON(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	if err := asciijson.Encode(&buf, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}

// Error answers with an error in envd's form.
func Error(w http.ResponseWriter, status int, message string) {
	JSON(w, status, protocol.Error{Code: status, Message: message})
}

// Cut shortens what a client sent, to be repeated in a message.
func Cut(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Text answers with an error as E2B's code interpreter does: a text, without
// an end of line, which clients put into their message.
func Text(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
