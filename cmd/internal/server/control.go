package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	// maxControlBody bounds a control-plane request, in bytes.
	maxControlBody = 1 << 20
	// bodyTimeout is what a client gets to send it.
	bodyTimeout = 30 * time.Second
	// maxKey bounds an API key, in bytes. E2B's have 44.
	maxKey = 512
)

// clientID is the constant that E2B's SDKs expect and nobody reads.
const clientID = "6532622b"

// teamHandler serves a request of a team.
type teamHandler func(w http.ResponseWriter, r *http.Request, team string)

// controlPlane serves E2B's API. Every error is E2B's JSON.
func (s *Server) controlPlane() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /ready", s.ready)
	for pattern, h := range map[string]teamHandler{
		"GET /teams": s.teams,

		"POST /v2/sandboxes":              s.createV2,
		"POST /sandboxes":                 s.createV1,
		"GET /v2/sandboxes":               s.listV2,
		"GET /sandboxes":                  s.listV1,
		"GET /sandboxes/metrics":          s.newestMetrics,
		"GET /sandboxes/{id}":             s.ofBox(s.get),
		"DELETE /sandboxes/{id}":          s.ofBox(s.kill),
		"POST /sandboxes/{id}/connect":    s.ofBox(s.connect),
		"POST /v2/sandboxes/{id}/connect": s.ofBox(s.connect),
		"POST /sandboxes/{id}/resume":     s.ofBox(s.resume),
		"POST /sandboxes/{id}/timeout":    s.ofBox(s.setTimeout),
		"POST /sandboxes/{id}/refreshes":  s.ofBox(s.refresh),
		"GET /sandboxes/{id}/metrics":     s.ofBox(s.metrics),
		"GET /sandboxes/{id}/logs":        s.logsV1,
		"GET /v2/sandboxes/{id}/logs":     s.logsV2,
		"POST /sandboxes/{id}/pause":      s.ofBox(s.pause),
		"POST /sandboxes/{id}/snapshots":  s.ofBox(s.createSnapshot),
		"POST /sandboxes/{id}/fork":       s.ofBox(s.fork),
		"POST /sandboxes/{id}/rollback":   s.ofBox(s.rollback), // Cubby's own
		"PUT /sandboxes/{id}/network":     s.ofBox(s.setNetwork),
		"GET /sandboxes/{id}/network":     s.flows, // Cubby's own
		"PATCH /sandboxes/{id}/metadata":  s.ofBox(s.boxNotYet("changing a sandbox's metadata")),
		"GET /teams/{id}/metrics":         notYet("metrics of a team"),
		"GET /teams/{id}/metrics/max":     notYet("metrics of a team"),
		"GET /snapshots":                  s.listSnapshots,
		"GET /cubby/disk":                 s.disk, // Cubby's own, as the next
		"DELETE /cubby/disk":              s.prune,
		"GET /templates":                  s.listTemplates,
		"GET /v2/templates":               s.listTemplatesV2,
		"GET /templates/{id}":             s.ofTemplate(getTemplate),
		"DELETE /templates/{id}":          s.deleteTemplate,
		"DELETE /templates/{ns}/{name}":   s.deleteNamespaced,
		"PATCH /templates/{id}":           s.ofTemplate(keepTemplate),
		"PATCH /v2/templates/{id}":        s.ofTemplate(keepTemplate),
		"GET /templates/{id}/{part}":      s.partOfTemplate,
		"DELETE /templates/tags":          notYet("building templates"),
		"/templates":                      notYet("building templates"),
		"/templates/{rest...}":            notYet("building templates"),
		"/v2/templates":                   notYet("building templates"),
		"/v2/templates/{rest...}":         notYet("building templates"),
		"/v3/templates":                   notYet("building templates"),
		"/v3/templates/{rest...}":         notYet("building templates"),
		"/volumes":                        notYet("volumes"),
		"/volumes/{rest...}":              notYet("volumes"),
		"/volumecontent/{rest...}":        notYet("volumes"),
		"GET /secrets":                    s.withSecrets(s.listSecrets),
		"POST /secrets":                   s.withSecrets(s.createSecret),
		"GET /secrets/{id}":               s.withSecrets(s.getSecret),
		"POST /secrets/{id}":              s.withSecrets(s.updateSecret),
		"DELETE /secrets/{id}":            s.withSecrets(s.removeSecret),
	} {
		mux.HandleFunc(pattern, s.withTeam(h))
	}
	return s.crossOrigin(strict(mux))
}

// strict answers in E2B's JSON where a ServeMux answers in words of its own: a
// path that nobody serves, a method that nobody serves there, and a path that
// would be redirected to its clean form.
func strict(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if escaped := r.URL.EscapedPath(); !strings.HasPrefix(escaped, "/") || path.Clean(escaped) != escaped {
			pattern = ""
			h = http.NotFoundHandler()
		}
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		answer := plain{header: http.Header{}}
		h.ServeHTTP(&answer, r)
		if answer.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", answer.header.Get("Allow"))
			writeStatus(w, http.StatusMethodNotAllowed, "method "+r.Method+" is not allowed here", "")
			return
		}
		writeError(w, fault.NotFound, "no such route: "+r.Method+" "+clip.Ellipsis(r.URL.Path, maxLoggedPath), "")
	})
}

// plain keeps a handler's status and header, and drops its body.
type plain struct {
	header http.Header
	status int
}

func (p *plain) Header() http.Header         { return p.header }
func (p *plain) Write(b []byte) (int, error) { return len(b), nil }
func (p *plain) WriteHeader(status int)      { p.status = status }

// crossOrigin lets programs in a browser use a server that asks for keys. One
// without keys trusts whoever reaches it, and must not trust every web page.
func (s *Server) crossOrigin(next http.Handler) http.Handler {
	if s.cfg.Keys == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Expose-Headers", "*")
		if isPreflight(r) {
			header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
			// "*" would leave out Authorization.
			header.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			header.Set("Access-Control-Max-Age", "7200")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// health says that the process answers. It looks neither at keys nor at whether there
// is room for a sandbox.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready says whether sandboxes can be made.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.host.Ready(); err != nil {
		s.log.Debug("not ready", "err", err)
		message := "sandboxes cannot be made now"
		if host.IsForClient(err) {
			message = fault.In(err).Message() // asking takes no key: it learns no more than that
		}
		writeError(w, fault.Unavailable, message, "")
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// teams lists the caller's own team.
func (s *Server) teams(w http.ResponseWriter, _ *http.Request, team string) {
	writeJSON(w, http.StatusOK, []protocol.Team{{TeamID: team, Name: team, IsDefault: true}})
}

// withTeam finds out whose request it is, or answers 401.
func (s *Server) withTeam(h teamHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		team, ok := s.authenticate(w, r)
		if ok {
			h(w, r, team)
		}
	}
}

// errNoKey is for a request without an API key, errMalformedKey for one with
// something else in its place.
var (
	errNoKey        = errors.New("authorization header is missing")
	errMalformedKey = errors.New("authorization header is malformed")
)

// teamOf returns the team of the request's key. The error is one of the two above,
// wraps host.ErrNotFound for a key that does not exist, or says that the
// team could not be looked up.
func (s *Server) teamOf(r *http.Request) (team string, err error) {
	if s.cfg.Keys == nil {
		return "", nil
	}
	secret := r.Header.Get(protocol.HeaderAPIKey)
	if secret == "" {
		// Clients of E2B's access tokens put the key there.
		bearer, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if secret = strings.TrimSpace(bearer); !isBearer || secret == "" {
			return "", errNoKey
		}
	} else if !strings.HasPrefix(secret, "e2b_") {
		return "", errMalformedKey
	}
	if len(secret) > maxKey {
		return "", host.ErrNotFound
	}
	return s.cfg.Keys.TeamOfKey(r.Context(), secret)
}

// authenticate returns the team of the request's key; without one it answers.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (team string, ok bool) {
	const hint = "`cubby keys list` shows the keys of this server, `cubby keys create` makes one"
	team, err := s.teamOf(r)
	switch {
	case errors.Is(err, errNoKey):
		writeError(w, fault.Unauthenticated, err.Error(), "send an API key in the header X-API-Key: "+hint)
	case errors.Is(err, errMalformedKey):
		writeError(w, fault.Unauthenticated, err.Error(), "API keys begin with e2b_: "+hint)
	case errors.Is(err, host.ErrNotFound):
		writeError(w, fault.Unauthenticated, "Invalid API key, please visit https://e2b.dev/docs/api-key for more information.", hint)
	case err != nil:
		s.log.Error("API key cannot be looked up", "err", err)
		writeError(w, fault.Unavailable, "API keys cannot be looked up now", "the server's log says why")
	default:
		noteTeam(r.Context(), team)
		return team, true
	}
	return "", false
}

// decode reads a JSON object; on failure it answers. An empty body is one without
// fields if it may be.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, into any, mayBeEmpty bool) bool {
	// A client that sends slowly holds no memory beyond the bound, but it must
	// not hold that for ever. Not every ResponseWriter has deadlines.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeStatus(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("request body too large: at most %d bytes are possible", maxControlBody), "")
		return false
	case errors.Is(err, os.ErrDeadlineExceeded):
		writeError(w, fault.Timeout, fmt.Sprintf("the request body did not come within %v", bodyTimeout), "")
		return false
	case err != nil:
		writeError(w, fault.InvalidArgument, "Error when parsing request: the body broke off", "")
		return false
	}
	_ = rc.SetReadDeadline(time.Time{})
	body = bytes.TrimSpace(body)
	if len(body) == 0 && mayBeEmpty {
		return true
	}
	if len(body) == 0 || body[0] != '{' {
		writeError(w, fault.InvalidArgument, "Error when parsing request: the body is no JSON object", "")
		return false
	}
	err = json.Unmarshal(body, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		writeError(w, fault.InvalidArgument, fmt.Sprintf("Error when parsing request: %s: %s was expected, not %s",
			clip.Ellipsis(wrong.Field, maxField), expected(wrong.Type), clip.Ellipsis(wrong.Value, maxField)), "")
		return false
	case err != nil:
		writeError(w, fault.InvalidArgument, "Error when parsing request: "+err.Error(), "")
		return false
	}
	return true
}

// maxField bounds what a message repeats of a request, in bytes.
const maxField = 64

// expected is a type as JSON calls it.
func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// fail answers with what err means for the client.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, did string, err error) {
	retryAfter, e := s.explained(r, did, err)
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
	}
	writeJSON(w, e.Code, e)
}

// explained is what err means for the client, and when it is worth trying again, if that
// is known.
func (s *Server) explained(r *http.Request, did string, err error) (retryAfter time.Duration, answer protocol.Error) {
	switch e := fault.In(err); {
	case host.IsForClient(err):
		answer = protocol.Error{Code: e.Code.HTTPStatus(), Message: e.Message(), Hint: e.Hint}
		if e.Hint != "" && (e.Code == fault.Incompatible || e.Code == fault.NoSpace) {
			// E2B's packages show nothing but the message, and these say what to do.
			answer.Message += ": " + e.Hint
		}
		return e.RetryAfter, answer
	case r.Context().Err() != nil:
		// The client went away, and what it asked for was given up: nobody reads
		// this.
		s.log.Debug(did, "err", err)
		return 0, protocol.Error{Code: fault.Unavailable.HTTPStatus(), Message: "the request was given up"}
	}
	s.log.Error(did, "err", err)
	if s.cfg.Keys != nil {
		// What the machine looks like is its owner's business.
		return 0, protocol.Error{Code: fault.Internal.HTTPStatus(), Message: did, Hint: "the server's log says why"}
	}
	return 0, protocol.Error{Code: fault.Internal.HTTPStatus(), Message: did + ": " + err.Error(),
		Hint: "run `cubby doctor` to see what this machine lacks"}
}

// writeError answers an error in E2B's form, with the status that its code means.
func writeError(w http.ResponseWriter, code fault.Code, message, hint string) {
	writeStatus(w, code.HTTPStatus(), message, hint)
}

// writeStatus is writeError for a status of HTTP that no code means.
func writeStatus(w http.ResponseWriter, status int, message, hint string) {
	writeJSON(w, status, protocol.Error{Code: status, Message: message, Hint: hint})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client has gone: nobody is left to hear of it.
	_ = json.NewEncoder(w).Encode(v)
}
