package host

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestGuestOfAnotherBuild: a guest of another build is named as such, whether it takes
// what it is told or refuses it; a refusal of a guest of this build is told as it is.
func TestGuestOfAnotherBuild(t *testing.T) {
	for _, test := range []struct {
		name, version string
		status        int
		mismatch      bool
		text          string
	}{
		{"takes it", "0.0.1-other", http.StatusNoContent, true, "0.0.1-other"},
		{"refuses it", "0.0.1-other", http.StatusBadRequest, true, "0.0.1-other"},
		{"says no build", "", http.StatusNoContent, true, guestversion.Build()},
		{"of this build, refuses it", guestversion.Build(), http.StatusBadRequest, false, "no such user"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t, &hosttest.Engine{Init: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.version != "" {
					w.Header().Set(protocol.HeaderVersion, test.version)
				}
				w.WriteHeader(test.status)
				if test.status != http.StatusNoContent {
					_, _ = w.Write([]byte("no such user"))
				}
			})}, nil)
			_, err := h.Create(t.Context(), CreateRequest{})
			if err == nil || strings.Contains(err.Error(), "of another build") != test.mismatch || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}
