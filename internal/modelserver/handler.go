package modelserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// dialect is one of the wire formats.
type dialect interface {
	// key is what a request came with, or "".
	key(h http.Header) string
	// read reads and checks a request, as far as it can.
	read(h http.Header, body []byte) (exchange, *apiError)
	// failure is the body of an error.
	failure(e *apiError) any
	// failureEvent is what a stream says of an error in its middle.
	failureEvent(e *apiError) (event string, data any)
	// missingKey and longContext are the errors of that name.
	missingKey() *apiError
	longContext() *apiError
	// ofStatus is the error that the provider has for a status.
	ofStatus(status int) *apiError
	// whole is the body of a reply that is not streamed, stream writes one that is.
	whole(x exchange, r Reply) any
	stream(w *writer, x exchange, r Reply) error
}

// exchange is a request and what its answer needs of it.
type exchange struct {
	Conversation
	id           string
	piece        int
	includeUsage bool   // OpenAI
	reasoning    string // OpenAI: the field of thinking
}

// apiError is an error in terms of both providers.
type apiError struct {
	status  int
	kind    string // "type"
	code    string // OpenAI
	param   string // OpenAI
	message string
}

func invalid(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: fmt.Sprintf(format, args...)}
}

// ServeHTTP answers POST …/chat/completions and /v1/messages and GET …/models.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.active.Done()
	var d dialect = openAI{}
	switch {
	case r.URL.Path == "/v1/models":
		if r.Header.Get("anthropic-version") != "" {
			d = anthropic{}
		}
		s.models(w, r, d)
		return
	case r.URL.Path == "/v1/messages":
		d = anthropic{}
	case r.URL.Path != "/v1/chat/completions":
		writeJSON(w, http.StatusNotFound, d.failure(&apiError{kind: "invalid_request_error",
			message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path)}))
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeJSON(w, http.StatusMethodNotAllowed, d.failure(&apiError{kind: "invalid_request_error", message: "Method not allowed"}))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			writeJSON(w, http.StatusRequestEntityTooLarge, d.failure(d.ofStatus(http.StatusRequestEntityTooLarge)))
		}
		return
	}
	s.complete(w, r, d, body)
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, d dialect, body []byte) {
	request := Request{Path: r.URL.Path, Header: r.Header, Body: body}
	x, failed := d.read(r.Header, body)
	if denied := s.authorize(d, r.Header); denied != nil {
		failed = denied
	}
	request.Conversation = x.Conversation
	if failed == nil && len(s.config.Models) > 0 && !slices.Contains(s.config.Models, x.Model) {
		failed = d.ofStatus(http.StatusNotFound)
		failed.message = fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", x.Model)
		if x.API == apiAnthropic {
			failed.message = "model: " + x.Model
		}
	}
	var reply Reply
	if failed == nil {
		reply = s.reply(x.Conversation)
		if !validStop(reply.Stop) {
			reply.Refuse = fmt.Sprintf("a reply's stop is %q: say end, tools, length or refused", reply.Stop)
		}
		if reply.Refuse != "" {
			failed = invalid("%s", reply.Refuse)
		}
	}
	if failed != nil {
		request.Status, request.Error = failed.status, failed.message
		s.record(request)
		writeJSON(w, failed.status, d.failure(failed))
		return
	}

	fault := &Fault{}
	if s.pending(reply.Fault, x.Conversation) {
		fault = reply.Fault
	}
	request.Status = cmp.Or(fault.Status, http.StatusOK)
	if fault.ContextTooLong {
		request.Status = http.StatusBadRequest
	}
	if fault.Hang || fault.CutAfter != nil && *fault.CutAfter == 0 {
		request.Status = 0
	}
	s.record(request)

	x.id = fmt.Sprintf("%s-turn-%d", x.API, x.Turn())
	x.piece, x.reasoning = s.config.Piece, s.config.ReasoningField
	ready := pause(r, fault.Delay)
	if fault.Hang {
		<-r.Context().Done()
	}
	if fault.Hang || !ready {
		panic(http.ErrAbortHandler) // nothing that looks like an answer
	}
	out := &writer{w: w, r: r, d: d, fault: fault, delay: s.config.Delay}
	if err := s.answer(out, d, x, reply); errors.Is(err, errCut) {
		panic(http.ErrAbortHandler) // net/http's way to break a connection
	}
}

// reply asks the hook or the script.
func (s *Server) reply(c Conversation) Reply {
	if s.config.Reply != nil {
		return s.config.Reply(c)
	}
	return s.config.Script.reply(c)
}

// answer sends a reply, or what befalls it.
func (s *Server) answer(out *writer, d dialect, x exchange, reply Reply) error {
	f := out.fault
	if f.RetryAfter != "" {
		out.w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.RetryAfterMS != 0 {
		out.w.Header().Set("Retry-After-Ms", strconv.Itoa(f.RetryAfterMS))
	}
	switch {
	case f.Body != "":
		out.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		out.w.WriteHeader(cmp.Or(f.Status, http.StatusOK))
		return out.write([]byte(f.Body))
	case f.ContextTooLong:
		e := d.longContext()
		return out.json(e.status, d.failure(e))
	case f.Status != 0:
		e := d.ofStatus(f.Status)
		e.message = cmp.Or(f.Message, e.message)
		return out.json(e.status, d.failure(e))
	}
	reply.complete(x)
	if !x.Stream {
		return out.json(http.StatusOK, d.whole(x, reply))
	}
	out.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out.w.Header().Set("Cache-Control", "no-cache")
	if err := out.begin(); err != nil {
		return err
	}
	return d.stream(out, x, reply)
}

// complete fills in what a reply leaves to the server.
func (r *Reply) complete(x exchange) {
	r.Calls = slices.Clone(r.Calls)
	for i := range r.Calls {
		if r.Calls[i].ID == "" {
			prefix := "call"
			if x.API == apiAnthropic {
				prefix = "toolu"
			}
			r.Calls[i].ID = fmt.Sprintf("%s_scripted%03d%02d", prefix, x.Turn(), i+1)
		}
	}
	if r.Stop == "" {
		r.Stop = "end"
		if len(r.Calls) > 0 {
			r.Stop = "tools"
		}
	}
	n := len(r.Text) + len(r.Thinking)
	for _, c := range r.Calls {
		n += len(c.Name) + len(c.arguments())
	}
	r.Usage.Input = cmp.Or(r.Usage.Input, x.estimate())
	r.Usage.Output = cmp.Or(r.Usage.Output, n/4+1)
}

func (s *Server) authorize(d dialect, h http.Header) *apiError {
	key := d.key(h)
	if s.config.NoKey || s.config.APIKey != "" && key == s.config.APIKey || s.config.APIKey == "" && key != "" {
		return nil
	}
	if key == "" {
		return d.missingKey()
	}
	return d.ofStatus(http.StatusUnauthorized)
}

func (s *Server) models(w http.ResponseWriter, r *http.Request, d dialect) {
	if denied := s.authorize(d, r.Header); denied != nil {
		writeJSON(w, denied.status, d.failure(denied))
		return
	}
	names := s.config.Models
	if len(names) == 0 {
		names = []string{"scripted"}
	}
	list := []any{}
	for _, name := range names {
		if _, ok := d.(anthropic); ok {
			list = append(list, object{"type": "model", "id": name, "display_name": name, "created_at": created.Format(time.RFC3339)})
			continue
		}
		list = append(list, object{"id": name, "object": "model", "created": created.Unix(), "owned_by": "cubby"})
	}
	if _, ok := d.(anthropic); ok {
		writeJSON(w, http.StatusOK, object{"data": list, "has_more": false, "first_id": names[0], "last_id": names[len(names)-1]})
		return
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": list})
}

// created is when everything here was made: replies do not depend on the clock.
var created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// object is a JSON object.
type object = map[string]any

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// pause waits and reports whether the client is still there.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return r.Context().Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
