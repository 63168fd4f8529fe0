package cubby

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Secret is what a server tells of a secret that it keeps for a team: never its value.
//
// The value is used by headers of a [Network]: ${e2b.secrets.NAME} anywhere in
// [SecretHeader].Value stands for it, and means the value that the secret has at the
// moment, also in sandboxes that run when it is changed.
type Secret struct {
	ID       string
	Name     string // lower case; the team has no other of that name
	Version  int64  // of the value: 1, and one more for each that replaced it
	Metadata map[string]string
	// CreatedAt is when it was first set, UpdatedAt when the value was set.
	CreatedAt, UpdatedAt time.Time
}

const maxSecretName = 128 // bytes

// SetSecret keeps a secret on the server for the key's team, or replaces the value of the
// one that has this name; its metadata stay. A name has letters, digits, '-', '_' and '.',
// at most 128, and upper case means lower case. A value has 1 to 8,192 bytes without
// control characters, and no error repeats it (parts of fewer than 6 bytes are not
// looked for).
//
// When a value was replaced, connections that use the one before have been cut when
// SetSecret returns. It fails with [CodeInvalidArgument] for a name or a value that cannot
// be, and with [CodeUnimplemented] on a server that keeps no secrets, such as a private
// Cubby.
func (c *Client) SetSecret(ctx context.Context, name, value string) (Secret, error) {
	const op = "set secret"
	if err := checkSecret(name, value); err != nil {
		return Secret{}, fail(op, CodeInvalidArgument, err)
	}
	var answer protocol.Secret
	path := "/secrets/" + url.PathEscape(name)
	replace := func() error {
		return c.control(ctx, http.MethodPost, path, nil, protocol.NewSecret{Value: value}, &answer)
	}
	err := replace()
	if CodeOf(err) == CodeNotFound {
		err = knowsSecrets(c.control(ctx, http.MethodPost, "/secrets", nil, protocol.NewSecret{Name: name, Value: value}, &answer))
		if CodeOf(err) == CodeConflict { // somebody else was faster
			err = replace()
		}
	}
	if err != nil {
		return Secret{}, withoutValues(fail(op, CodeUnavailable, err), value)
	}
	return secretOf(answer), nil
}

// ListSecrets lists the secrets of the key's team by name, a page at a time as the loop
// goes on. An error is the last element, with [CodeUnimplemented] on a server that keeps no
// secrets.
func (c *Client) ListSecrets(ctx context.Context) iter.Seq2[Secret, error] {
	const op = "list secrets"
	return func(yield func(Secret, error) bool) {
		cursor := ""
		for range maxPages {
			query := url.Values{"limit": {strconv.Itoa(pageSize)}}
			if cursor != "" {
				query.Set("nextToken", cursor)
			}
			var page []protocol.Secret
			next, err := c.list(ctx, "/secrets", query, &page)
			if err != nil {
				yield(Secret{}, fail(op, CodeUnavailable, knowsSecrets(err)))
				return
			}
			for _, s := range page {
				if !yield(secretOf(s), nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == cursor || len(next) > maxCursor {
				yield(Secret{}, fail(op, CodeInternal, errPages))
				return
			}
			cursor = next
		}
		yield(Secret{}, fail(op, CodeInternal, fmt.Errorf("there are more than %d pages", maxPages)))
	}
}

// RemoveSecret forgets a secret of the key's team by its name or ID. When it returns,
// connections that use its value have been cut; hosts whose headers refer to it cannot be
// reached then. It fails with [CodeNotFound] when there is none.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	const op = "remove secret"
	if err := checkSecretName(name); err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	if err := c.control(ctx, http.MethodDelete, "/secrets/"+url.PathEscape(name), nil, nil, nil); err != nil {
		return fail(op, CodeUnavailable, err)
	}
	return nil
}

// knowsSecrets tells a server without the call from one that has no secrets.
func knowsSecrets(err error) error {
	if !unknownCall(err) {
		return err
	}
	return &Error{Code: CodeUnimplemented, Err: fmt.Errorf("the server keeps no secrets: %w", err)}
}

func secretOf(s protocol.Secret) Secret {
	return Secret{
		ID: s.SecretID, Name: s.Name, Version: s.CurrentVersion, Metadata: s.Metadata, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

// checkSecretName does not repeat what may be a value in the wrong place.
func checkSecretName(name string) error {
	switch {
	case name == "" || len(name) > maxSecretName:
		return fmt.Errorf("the name of a secret has 1 to %d bytes", maxSecretName)
	case name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}):
		return errors.New("the name of a secret has letters, digits, '-', '_' and '.' only")
	}
	return nil
}

func checkSecret(name, value string) error {
	if err := checkSecretName(name); err != nil {
		return err
	}
	switch {
	case value == "":
		return errors.New("the secret has no value")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return errors.New("the secret's value has a line end or another control character, which headers cannot have")
	}
	return nil
}
