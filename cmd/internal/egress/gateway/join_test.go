//go:build linux

package gateway

import (
	"slices"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// TestSecrets: what is taken out of answers is what somebody may have to keep.
func TestSecrets(t *testing.T) {
	for _, test := range []struct {
		rule egress.HeaderRule
		want []string
	}{
		{egress.HeaderRule{Headers: map[string]string{"X-Key": "0123456789"}}, []string{"0123456789"}},
		{egress.HeaderRule{Headers: map[string]string{"Authorization": "Bearer 0123456789"}}, []string{"0123456789", "Bearer 0123456789"}},
		{egress.HeaderRule{Headers: map[string]string{"X-Trace": "on"}}, nil},
		{egress.HeaderRule{Headers: map[string]string{"Authorization": "Bearer on"}}, []string{"Bearer on"}},
		{egress.HeaderRule{Headers: map[string]string{"Cookie": "key=0123456789;"}, Secrets: []string{"0123456789", "short"}},
			[]string{"0123456789", "key=0123456789;"}},
	} {
		var got []string
		for _, value := range secrets(&test.rule) {
			got = append(got, string(value))
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%q %q: %q", test.rule.Headers, test.rule.Secrets, got)
		}
	}
}
