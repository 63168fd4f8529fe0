package server

import (
	"encoding/json"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// maxControlBody bounds a control-plane request, in bytes.
const maxControlBody = 1 << 20

// clientID is the constant that E2B's SDKs expect and nobody reads.
const clientID = "6532622b"

// controlPlane serves E2B's API.
func (s *Server) controlPlane() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /v2/sandboxes", s.create)
	mux.HandleFunc("GET /sandboxes/{id}", s.get)
	mux.HandleFunc("DELETE /sandboxes/{id}", s.kill)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotImplemented, r.Method+" "+r.URL.Path+" is not implemented", "")
	})
	return mux
}

func writeError(w http.ResponseWriter, code int, message, hint string) {
	writeJSON(w, code, protocol.Error{Code: code, Message: message, Hint: hint})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client may have gone; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(v)
}
