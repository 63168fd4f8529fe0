package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestCodes: every code has a name and a status of its own, and comes back from both.
func TestCodes(t *testing.T) {
	names, statuses := map[string]bool{}, map[int]bool{}
	last := 0
	for c := Code(1); int(c) < len(codes); c++ {
		name, status := c.String(), c.HTTPStatus()
		if name == "" || strings.Contains(name, "(") || names[name] || fromName(name) != c {
			t.Errorf("%d is called %q", int(c), name)
		}
		if statuses[status] || status <= last || FromHTTP(status) != c {
			t.Errorf("%s has status %d after %d, which is %s", c, status, last, FromHTTP(status))
		}
		names[name], statuses[status], last = true, true, status
	}
	for _, c := range []Code{-1, 0, Code(len(codes))} {
		if c.String() != fmt.Sprintf("code(%d)", int(c)) || c.HTTPStatus() != http.StatusInternalServerError {
			t.Errorf("%d: %s, %d", int(c), c, c.HTTPStatus())
		}
	}
	for status, want := range map[int]Code{405: Unimplemented, 418: InvalidArgument, 504: Timeout, 599: Internal} {
		if got := FromHTTP(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
	if got := fromName("of the future"); got != Internal {
		t.Errorf("an unknown name is %s", got)
	}
}

func TestText(t *testing.T) {
	cause := errors.New("no such file")
	for _, tt := range []struct {
		err           Error
		text, message string
	}{
		{Error{Err: cause}, "no such file", "no such file"},
		{Error{Op: "read", Err: cause}, "read: no such file", "read: no such file"},
		{Error{Op: "read", Err: cause, Hint: "make it"}, "read: no such file (make it)", "read: no such file"},
	} {
		if got := tt.err.Error(); got != tt.text || tt.err.Message() != tt.message || !errors.Is(&tt.err, cause) {
			t.Errorf("%q, %q, want %q, %q", got, tt.err.Message(), tt.text, tt.message)
		}
	}
}

// TestWrap: the first *Error of the tree stands for all of it, and stays as it is.
func TestWrap(t *testing.T) {
	plain := errors.New("broken")
	bare, named := &Error{Code: NotFound, Err: plain}, &Error{Op: "open", Code: Conflict, Err: plain, Hint: "h", RetryAfter: time.Second}
	for _, tt := range []struct {
		name         string
		in           error
		code         Code
		wrap, within string
	}{
		{"plain", plain, Unavailable, "run: broken", "run: broken"},
		{"a context's", fmt.Errorf("x: %w", context.Canceled), Canceled, "run: x: context canceled", "run: x: context canceled"},
		{"a context's deadline", context.DeadlineExceeded, Timeout, "run: context deadline exceeded", "run: context deadline exceeded"},
		{"without an operation", bare, NotFound, "run: broken", "run: broken"},
		{"deep in the tree", errors.Join(plain, fmt.Errorf("y: %w", bare)), NotFound, "run: broken", "run: broken"},
		{"with an operation", named, Conflict, "open: broken (h)", "run: open: broken (h)"},
	} {
		beforeBare, beforeNamed := *bare, *named
		for _, got := range []struct {
			err  error
			want string
		}{{Wrap("run", Unavailable, tt.in), tt.wrap}, {Within("run", Unavailable, tt.in), tt.within}} {
			e := In(got.err)
			if e == nil || e.Code != tt.code || CodeOf(got.err) != tt.code || e.Error() != got.want {
				t.Errorf("%s: %v, want %q", tt.name, got.err, got.want)
			}
		}
		if *bare != beforeBare || *named != beforeNamed {
			t.Errorf("%s: somebody else's error was changed", tt.name)
		}
	}
	if e := In(Within("run", Internal, named)); e.RetryAfter != time.Second || e.Hint != "h" {
		t.Errorf("%+v", e)
	}
	if err := errors.Join(Wrap("run", Internal, nil), Within("run", Internal, nil)); err != nil {
		t.Error(err)
	}
	if CodeOf(plain) != 0 || CodeOf(nil) != 0 || In(plain) != nil {
		t.Error("an error without a code has one")
	}
}

// TestWire: an error arrives in another process as it was.
func TestWire(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   error
		want Error
	}{
		{"all of it", &Error{Op: "open", Code: Conflict, Err: errors.New("taken"), Hint: "end it", RetryAfter: 1500 * time.Millisecond},
			Error{Op: "open", Code: Conflict, Hint: "end it", RetryAfter: 1500 * time.Millisecond}},
		{"in others", errors.Join(errors.New("x"), &Error{Code: NoSpace, Err: errors.New("taken")}), Error{Code: NoSpace}},
		{"without a code", errors.New("taken"), Error{Code: Unavailable}},
	} {
		b, err := json.Marshal(ToWire(Unavailable, tt.in))
		if err != nil {
			t.Fatal(err)
		}
		var w Wire
		if err := json.Unmarshal(b, &w); err != nil {
			t.Fatal(err)
		}
		got := *w.Fault()
		if got.Err == nil || got.Err.Error() != "taken" {
			t.Errorf("%s: cause %v", tt.name, got.Err)
		}
		if got.Err = nil; got != tt.want {
			t.Errorf("%s: %+v, want %+v (%s)", tt.name, got, tt.want, b)
		}
	}
}
