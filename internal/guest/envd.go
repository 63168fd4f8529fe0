//go:build linux

package guest

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
	"github.com/cubby-sandbox/cubby/internal/protocol/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/internal/version"
)

const unauthorised = "unauthorized access, please provide a valid access token or method signing if supported"

// Envd returns the handler of port 49983.
func (g *Guest) Envd() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(protocol.HeaderVersion, version.Version)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /init", g.handleInit)
	mux.HandleFunc("GET /files", g.handleDownload)
	mux.HandleFunc("POST /files", g.handleUpload)
	mux.HandleFunc("GET /envs", g.withToken(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, g.env()) }))
	mux.HandleFunc("POST /cubby/oom", g.withToken(g.handleOOM))
	prefix, rpc := envdconnect.NewFilesystemHandler(&filesystemService{g: g})
	mux.HandleFunc(prefix, g.withToken(rpc.ServeHTTP))
	return cors(mux)
}

// cors lets any origin call: what protects a sandbox is its token.
func cors(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Expose-Headers", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
			allowed := r.Header.Get("Access-Control-Request-Headers")
			if allowed == "" {
				allowed = "*"
			}
			header.Set("Access-Control-Allow-Headers", allowed)
			header.Set("Access-Control-Max-Age", "7200")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	if err := encodeASCII(&buf, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, protocol.Error{Code: status, Message: message})
}

func (g *Guest) token() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settings.token
}

// authorised says whether r carries the token, if one is set.
func (g *Guest) authorised(r *http.Request) bool {
	token := g.token()
	return token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(r.Header.Get(protocol.HeaderAccessToken))) == 1
}

func (g *Guest) withToken(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !g.authorised(r) {
			writeError(w, http.StatusUnauthorized, unauthorised)
			return
		}
		h(w, r)
	}
}

// signature is E2B's for a path of GET or POST /files; expires is unix seconds
// as text, empty for never.
func signature(path, operation, user, token, expires string) string {
	s := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		s += ":" + expires
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// checkFiles says whether r may read or write a file: by the token or by a
// signature of its path.
func (g *Guest) checkFiles(r *http.Request, operation string) error {
	token := g.token()
	if token == "" {
		return nil
	}
	if r.Header.Get(protocol.HeaderAccessToken) != "" {
		if g.authorised(r) {
			return nil
		}
		return errors.New(unauthorised)
	}
	q := r.URL.Query()
	got := q.Get("signature")
	if got == "" {
		return errors.New("missing signature query parameter")
	}
	expires := q.Get("signature_expiration")
	want := signature(q.Get("path"), operation, q.Get("username"), token, expires)
	if subtle.ConstantTimeCompare([]byte(want), []byte(got)) != 1 {
		return errors.New("invalid signature")
	}
	if expires != "" {
		if at, err := strconv.ParseInt(expires, 10, 64); err != nil || at < time.Now().Unix() {
			return errors.New("signature is already expired")
		}
	}
	return nil
}

func (g *Guest) handleInit(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(protocol.HeaderVersion, version.Version)
	if !g.authorised(r) {
		writeError(w, http.StatusUnauthorized, unauthorised)
		return
	}
	var req protocol.InitRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&req); err != nil && r.ContentLength != 0 {
		writeError(w, http.StatusBadRequest, "bad request: "+err.Error())
		return
	}
	for name, v := range req.EnvVars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(v, "\x00") {
			writeError(w, http.StatusBadRequest, "bad environment variable "+strconv.Quote(name))
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if req.AccessToken != "" {
		g.settings.token = req.AccessToken
	}
	if req.EnvVars != nil {
		g.settings.env = req.EnvVars
	}
	if req.DefaultUser != "" {
		g.settings.user = req.DefaultUser
	}
	if req.DefaultWorkdir != "" {
		g.settings.workdir = path.Clean(req.DefaultWorkdir)
	}
	w.WriteHeader(http.StatusNoContent)
}
