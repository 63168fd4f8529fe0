package endpoint

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// wireError is what an endpoint says of an error.
type wireError struct {
	Message, Type, Code string
	isError             bool // it has the form of an error
}

// parseError reads the error JSON of OpenAI, Anthropic and the servers that speak
// like them: {"error": {…}}, {"error": "…"}, {"message": "…"}, {"detail": …}.
// Of what is no JSON it takes the beginning.
func parseError(data []byte) wireError {
	var outer struct {
		Error, Message, Detail, Type, Code json.RawMessage
	}
	if json.Unmarshal(data, &outer) != nil {
		text := strings.TrimSpace(string(data[:min(len(data), 300)]))
		if strings.HasPrefix(text, "<") {
			text = "a web page"
		}
		return wireError{Message: text}
	}
	w := wireError{Message: text(outer.Message), Type: text(outer.Type), Code: text(outer.Code)}
	if len(outer.Error) > 0 && string(outer.Error) != "null" {
		var inner struct {
			Message, Type, Code json.RawMessage
		}
		w.isError = true
		if json.Unmarshal(outer.Error, &inner) == nil {
			w = wireError{text(inner.Message), text(inner.Type), text(inner.Code), true}
		} else if s := text(outer.Error); s != "" {
			w.Message = s
		}
	}
	if w.Message == "" && len(outer.Detail) > 0 {
		w.Message = text(outer.Detail)
	}
	return w
}

// text returns a string, or any other JSON as it is written.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// kindOf sorts an error; status is 0 for one inside a stream.
func kindOf(status int, said wireError) agent.ModelErrorKind {
	what := strings.ToLower(said.Type + " " + said.Code)
	has := func(s string, words ...string) bool {
		for _, w := range words {
			if strings.Contains(s, w) {
				return true
			}
		}
		return false
	}
	// Who has no credit is not helped by asking again, whatever the status.
	if has(what, "insufficient_quota", "billing_error") || status == http.StatusPaymentRequired {
		return agent.KindUnauthorized
	}
	if status == 0 || status == 400 || status == 413 || status == 422 {
		if status == 413 || has(what, "context_length", "exceed_context_size", "request_too_large") ||
			has(strings.ToLower(said.Message), "maximum context length", "context length exceeded", "prompt is too long", "context window", "available context size") {
			return agent.KindContextTooLong
		}
	}
	switch {
	case status == 401 || status == 403:
		return agent.KindUnauthorized
	case status == 404:
		return agent.KindUnknownModel
	case status == 429:
		return agent.KindRateLimited
	case status == 408 || status >= 500:
		return agent.KindOverloaded
	case status != 0:
		return agent.KindInvalidRequest
	case has(what, "rate_limit", "429"):
		return agent.KindRateLimited
	case has(what, "authentication", "permission", "invalid_api_key", "401", "403"):
		return agent.KindUnauthorized
	case has(what, "not_found", "404"):
		return agent.KindUnknownModel
	case has(what, "invalid_request", "bad_request", "400"):
		return agent.KindInvalidRequest
	}
	return agent.KindOverloaded // overloaded_error, api_error, server_error and what nobody names
}

// hint says what to do about an error.
func (e *Endpoint) hint(out *agent.ModelError, said wireError) {
	switch out.Kind {
	case agent.KindUnauthorized:
		out.Hint = "check " + e.KeyVar + ": the key is missing, wrong, or not for this model"
		if strings.Contains(said.Type+said.Code, "quota") || strings.Contains(said.Type, "billing") || out.Status == http.StatusPaymentRequired {
			out.Hint = "the account of the key in " + e.KeyVar + " has no credit left: see the provider's billing page"
		}
	case agent.KindUnknownModel:
		out.Hint = "check the model's name, and the base URL (" + e.URLVar + ")"
	case agent.KindContextTooLong:
		out.Hint = "begin a new session, or give it less"
	case agent.KindInvalidResponse:
		out.Hint = "check the base URL (" + e.URLVar + ")"
	}
}

// clean makes an endpoint's words one line for a person: bounded, without escape
// codes and without secrets.
func (e *Endpoint) clean(s string) string {
	for _, secret := range e.secrets() {
		s = strings.ReplaceAll(s, secret, "[secret]")
	}
	const bound = 1000
	return clip.Ellipsis(strings.Join(strings.Fields(codeexec.CleanText(s[:min(len(s), 4*bound)])), " "), bound)
}

// Hide adds what a request authenticates itself with to what is never told.
func (e *Endpoint) Hide(h http.Header) {
	for _, name := range []string{"Authorization", "Api-Key", "X-Api-Key", "X-Amz-Security-Token"} {
		e.Secrets = append(e.Secrets, h.Values(name)...)
	}
}

// secrets returns what is never told, the longest first: one may hold another.
func (e *Endpoint) secrets() []string {
	var out []string
	add := func(s string, least int) {
		if len(s) >= least {
			out = append(out, s)
		}
	}
	for _, secret := range append([]string{e.Key}, e.Secrets...) {
		add(secret, 4)
		for _, field := range strings.Fields(secret) { // "Bearer …" is told without its first word
			add(field, 8)
		}
	}
	if u, err := url.Parse(e.BaseURL); err == nil && u.User != nil {
		password, _ := u.User.Password()
		add(password, 4)
		add(u.User.Username(), 8) // some put a token there
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// retryAfter reads how long an endpoint asks to wait: milliseconds, seconds or a
// date. It is 0 if it does not say, or nonsense, and a day at the most.
func retryAfter(h http.Header, now time.Time) time.Duration {
	number := func(s string, unit time.Duration) (time.Duration, bool) {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || math.IsNaN(f) || f < 0 {
			return 0, false
		}
		return time.Duration(min(f*float64(unit), float64(24*time.Hour))), true
	}
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	v := h.Get("Retry-After")
	if d, ok := number(v, time.Second); ok {
		return d
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(t.Sub(now), 0), 24*time.Hour)
	}
	return 0
}
