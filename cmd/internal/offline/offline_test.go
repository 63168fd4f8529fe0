package offline

import (
	"slices"
	"testing"
)

// TestFiles: who asks for a registry that is reached is told nothing and may ask again.
func TestFiles(t *testing.T) {
	const npmrc = "fund=false\nupdate-notifier=false\n"
	for _, test := range []struct {
		offline           []string
		network, pip, npm string
	}{
		{[]string{}, "", "", npmrc},
		{[]string{"debian"}, "debian\n" + someClosed + "\n", "", npmrc},
		{[]string{"npm", "debian"}, "npm debian\n" + someClosed + "\n", "", npmrc + "fetch-retries=0\naudit=false\n"},
		{Registries, "pypi npm debian\n" + allClosed + "\n", "[global]\nretries = 0\n", npmrc + "fetch-retries=0\naudit=false\n"},
	} {
		got := Files(test.offline)
		if got[NetworkFile] != test.network || got[PipFile] != test.pip || got[NpmFile] != test.npm {
			t.Errorf("%q: %q", test.offline, got)
		}
		for path, text := range got {
			if text == "" || !slices.Contains(Paths, path) {
				t.Errorf("%q: %s has %q", test.offline, path, text)
			}
		}
	}
}
