package egress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// secretReference and secretEnd stand around the name of a secret, as E2B's
	// clients write it: ${e2b.secrets.NAME}.
	secretReference = "${e2b.secrets."
	secretEnd       = "}"
	// reserved begins every reference of E2B's, also to what Cubby does not have.
	reserved = "${e2b."
	// maxHeaderValue bounds a header's value with the secrets in it, in bytes.
	maxHeaderValue = 16 << 10
	// maxReferences bounds the references to secrets in a header's value.
	maxReferences = 16
)

// SecretNames returns the names of the secrets that headers' values refer to, sorted.
// They are in lower case, as E2B keeps them.
func (r Rules) SecretNames() []string {
	names := map[string]bool{}
	for _, h := range r.Headers {
		for _, value := range h.Headers {
			_, _ = expand(value, func(name string) string { names[name] = true; return "" })
		}
	}
	return sortedKeys(names)
}

// WithSecrets returns the rules with values in place of the references to them, which
// are ${e2b.secrets.NAME} anywhere in a header's value. A rule that refers to a secret
// that values does not have gets no headers: its Missing names the secret, and its host
// cannot be reached. The error is for who wrote the rules, and has no value in it.
func (r Rules) WithSecrets(values map[string]string) (Rules, error) {
	r.Headers = slices.Clone(r.Headers)
	for i, h := range r.Headers {
		resolved, err := h.withSecrets(values)
		if err != nil {
			return Rules{}, err
		}
		r.Headers[i] = resolved
	}
	return r, nil
}

func (h HeaderRule) withSecrets(values map[string]string) (HeaderRule, error) {
	headers, used, missing := map[string]string{}, map[string]bool{}, ""
	for _, name := range sortedKeys(h.Headers) {
		value, err := expand(h.Headers[name], func(secret string) string {
			value, ok := values[secret]
			if !ok && missing == "" {
				missing = secret
			}
			if value != "" {
				used[value] = true
			}
			return value
		})
		switch {
		case err != nil:
			return HeaderRule{}, fmt.Errorf("Value for header %q in rule for domain %q: %w", name, h.Host, err)
		case len(value) > maxHeaderValue:
			return HeaderRule{}, fmt.Errorf("Value for header %q in rule for domain %q is longer than %d bytes with the secrets in it.",
				name, h.Host, maxHeaderValue)
		case !httpguts.ValidHeaderFieldValue(value):
			return HeaderRule{}, fmt.Errorf("Value for header %q in rule for domain %q: a secret in it has characters that headers cannot have.",
				name, h.Host)
		}
		headers[name] = value
	}
	if missing != "" {
		return HeaderRule{Host: h.Host, Port: h.Port, Missing: missing}, nil
	}
	h.Headers, h.Secrets = headers, slices.Sorted(maps.Keys(used))
	return h, nil
}

// expand replaces the references in a header's value.
func expand(value string, of func(name string) string) (string, error) {
	var b strings.Builder
	for n := 0; ; n++ {
		before, rest, found := strings.Cut(value, reserved)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		rest = reserved + rest
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, secretReference), secretEnd)
		switch {
		case !strings.HasPrefix(rest, secretReference) || !closed || name == "" || strings.ContainsAny(name, "{$"):
			return "", fmt.Errorf("what begins with %s must be a reference to a secret: ${e2b.secrets.NAME}", reserved)
		case n == maxReferences:
			return "", fmt.Errorf("at most %d references to secrets are possible", maxReferences)
		}
		b.WriteString(of(strings.ToLower(name)))
		value = after
	}
}
