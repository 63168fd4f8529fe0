//go:build linux

package guest

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const unauthorised = "unauthorized access, please provide a valid access token or method signing if supported"

// maxCall bounds one message of a call about files, in bytes: paths are all that
// they carry.
const maxCall = 64 << 10

// Envd returns the handler of port 49983. Everything needs the sandbox's token, if
// it has one, except GET /health; /files takes a signed URL as well, and /init wants
// the host's token. Before the first /init there is nothing else but /health.
func (g *Guest) Envd() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(protocol.HeaderVersion, guestversion.Build())
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /init", g.handleInit)
	mux.HandleFunc("GET /files", g.handleDownload)
	mux.HandleFunc("POST /files", g.handleUpload)
	mux.HandleFunc("POST /files/compose", g.handleCompose)
	mux.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, g.variables()) })
	mux.HandleFunc("GET /metrics", g.handleMetrics)
	mux.HandleFunc("POST /cubby/oom", g.handleOOM)
	prefix, rpc := envdconnect.NewFilesystemHandler(&filesystemService{g: g}, connect.WithReadMaxBytes(maxCall))
	mux.Handle(prefix, rpc)
	mux.Handle(g.processHandler())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	})
	return cors(g.initialised(g.guarded(mux)))
}

// guarded asks for the token, except where the handler itself decides, and for the
// host's where only the host may ask.
func (g *Guest) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := false
		switch call := r.Method + " " + r.URL.Path; {
		case call == "GET /health", call == "HEAD /health", call == "GET /files", call == "HEAD /files", call == "POST /files":
			allowed = true
		case r.URL.Path == "/init" || strings.HasPrefix(r.URL.Path, "/cubby/"):
			allowed = g.fromHost(r)
		default:
			allowed = g.authorised(r)
		}
		if !allowed {
			writeError(w, http.StatusUnauthorized, unauthorised)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// cors lets any origin call: what protects a sandbox is its token.
func cors(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Expose-Headers", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
			// Repeated, because "*" would not cover Authorization.
			allowed := r.Header.Get("Access-Control-Request-Headers")
			if allowed == "" {
				allowed = "*"
			}
			header.Set("Access-Control-Allow-Headers", allowed)
			header.Set("Access-Control-Max-Age", "7200")
			header.Add("Vary", "Access-Control-Request-Headers")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// defaultKeepalive is how often E2B's envd says on a silent stream that it lives,
// and headerKeepalive the header with which a client asks for another interval, in
// seconds.
const (
	defaultKeepalive = 90 * time.Second
	headerKeepalive  = "Keepalive-Ping-Interval"
)

// keepaliveInterval is how often the caller wants to hear of a silent stream.
func keepaliveInterval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(headerKeepalive))
	if err != nil || seconds < 1 || seconds > 24*60*60 {
		return defaultKeepalive
	}
	return time.Duration(seconds) * time.Second
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

// authorised says whether r carries the token, if one is set.
func (g *Guest) authorised(r *http.Request) bool {
	token := g.settings.Load().token
	return token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(r.Header.Get(protocol.HeaderAccessToken))) == 1
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

func denied(message string) error { return &httpError{http.StatusUnauthorized, message} }

// checkFiles says whether r may read or write a file: by the token or by a
// signature of its path. A token that is sent must fit, signature or not; a
// signature is checked before its time, so that nobody learns from a forged one.
func (g *Guest) checkFiles(r *http.Request, operation string) error {
	q := r.URL.Query()
	expires, until := q.Get("signature_expiration"), int64(0)
	if expires != "" {
		var err error
		if until, err = strconv.ParseInt(expires, 10, 64); err != nil {
			return badRequest("Invalid format for parameter signature_expiration: '%s' is not a number of seconds", cut(expires))
		}
		expires = strconv.FormatInt(until, 10) // what was signed is the number
	}
	token := g.settings.Load().token
	if token == "" {
		return nil
	}
	if r.Header.Get(protocol.HeaderAccessToken) != "" {
		if g.authorised(r) {
			return nil
		}
		return denied("access token present in header but does not match")
	}
	if !q.Has("signature") {
		return denied("missing signature query parameter")
	}
	want := signature(q.Get("path"), operation, q.Get("username"), token, expires)
	if subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("signature"))) != 1 {
		return denied("invalid signature")
	}
	if expires != "" && until < time.Now().Unix() {
		return denied("signature is already expired")
	}
	return nil
}

// cut shortens what a client sent, to be repeated in a message.
func cut(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
