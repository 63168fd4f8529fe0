package cubby_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

// secretsServer keeps secrets as a server does. raced makes the first create find that
// somebody else has made the secret meanwhile.
type secretsServer struct {
	values map[string]string
	asked  []string
	raced  bool
}

func (s *secretsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Method+" "+r.URL.EscapedPath())
	var body struct{ Name, Value string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	name := strings.ToLower(strings.TrimPrefix(r.URL.Path, "/secrets/"))
	_, known := s.values[name]
	told := func(status int, name string, version int) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"secretID":"sec_1","name":%q,"currentVersion":%d,"metadata":{},"createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z"}`, name, version)
	}
	switch {
	case r.URL.Path == "/secrets" && s.raced:
		s.raced = false
		s.values[strings.ToLower(body.Name)] = "theirs"
		refuse(http.StatusConflict, "409", "exists")(w, r)
	case r.URL.Path == "/secrets":
		s.values[strings.ToLower(body.Name)] = body.Value
		told(http.StatusCreated, strings.ToLower(body.Name), 1)
	case !known:
		refuse(http.StatusNotFound, "404", "Secret not found")(w, r)
	case r.Method == http.MethodDelete:
		delete(s.values, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.values[name] = body.Value
		told(http.StatusOK, name, 2)
	}
}

func TestSetSecret(t *testing.T) {
	s := &secretsServer{values: map[string]string{}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL, APIKey: "e2b_k"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		value   string
		version int64
		raced   bool
	}{{"one", 1, false}, {"two", 2, false}, {"three", 2, true}} {
		if want.raced {
			delete(s.values, "api-key")
			s.raced = true
		}
		got, err := c.SetSecret(t.Context(), "API-Key", want.value)
		if err != nil || got.Version != want.version || got.Name != "api-key" || got.ID != "sec_1" || got.UpdatedAt.IsZero() || s.values["api-key"] != want.value {
			t.Errorf("%d: %+v, %v, kept %q", i, got, err, s.values)
		}
	}
	if err := c.RemoveSecret(t.Context(), "api-key"); err != nil || len(s.values) > 0 {
		t.Errorf("%v, kept %q", err, s.values)
	}
	if err := c.RemoveSecret(t.Context(), "api-key"); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("again: %v", err)
	}
}

// TestSecretRefused: what cannot be is not sent, and no error has a value, or what may be
// one in the name's place.
func TestSecretRefused(t *testing.T) {
	s := &secretsServer{values: map[string]string{}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL, APIKey: "e2b_k"})
	if err != nil {
		t.Fatal(err)
	}
	const value = "hunter2hunter2"
	for _, name := range []string{"", ".", "..", "a/b", "KEY=" + value, value + "\n", "ä", strings.Repeat("x", 129)} {
		_, err := c.SetSecret(t.Context(), name, value)
		removed := c.RemoveSecret(t.Context(), name)
		if cubby.CodeOf(err) != cubby.CodeInvalidArgument || cubby.CodeOf(removed) != cubby.CodeInvalidArgument ||
			strings.Contains(fmt.Sprint(err, removed), value) {
			t.Errorf("%q: %v, %v", name, err, removed)
		}
	}
	for _, bad := range []string{"", value + "\n", value + "\r", "\x00" + value, value + "\x7f"} {
		if _, err := c.SetSecret(t.Context(), "a", bad); cubby.CodeOf(err) != cubby.CodeInvalidArgument || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("sent: %q", s.asked)
	}

	repeats := client(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		refuse(http.StatusBadRequest, "400", "what is this: "+string(b))(w, r)
	})
	if _, err := repeats.SetSecret(t.Context(), "a", "Bearer "+value); err == nil || strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), value) {
		t.Errorf("a value is in the error: %v", err)
	}
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		other := client(t, refuse(status, fmt.Sprint(status), "no such call"))
		if _, err := other.SetSecret(t.Context(), "a", value); cubby.CodeOf(err) != cubby.CodeUnimplemented {
			t.Errorf("%d: %v", status, err)
		}
		for _, err := range other.ListSecrets(t.Context()) {
			if cubby.CodeOf(err) != cubby.CodeUnimplemented {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
}

func TestListSecrets(t *testing.T) {
	names := func(h http.HandlerFunc) (all []string, err error) {
		for s, err := range client(t, h).ListSecrets(t.Context()) {
			if err != nil {
				return all, err
			}
			all = append(all, fmt.Sprint(s.Name, s.Version, s.Metadata))
		}
		return all, nil
	}
	all, err := names(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/secrets" || r.Header.Get("X-API-Key") != "e2b_k" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		if r.URL.Query().Get("nextToken") == "" {
			w.Header().Set("X-Next-Token", "b")
			io.WriteString(w, `[{"name":"a","currentVersion":1},{"name":"b","currentVersion":7,"metadata":{"k":"v"}}]`)
			return
		}
		io.WriteString(w, `[{"name":"c","currentVersion":1}]`)
	})
	if want := []string{"a1 map[]", "b7 map[k:v]", "c1 map[]"}; err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%q, %v", all, err)
	}
	for name, h := range map[string]http.HandlerFunc{
		"a token again and again": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Next-Token", "same")
			io.WriteString(w, `[]`)
		},
		"pages without end": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Next-Token", r.URL.Query().Get("nextToken")+"x")
			io.WriteString(w, `[]`)
		},
		"no list": answer(`{}`),
	} {
		if _, err := names(h); cubby.CodeOf(err) != cubby.CodeInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
}
