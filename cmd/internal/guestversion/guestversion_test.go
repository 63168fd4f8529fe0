package guestversion

import (
	"os"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal"
)

// TestContract: the files of the contract are those of the tree, and none of the
// channel's is forgotten.
func TestContract(t *testing.T) {
	entries, err := os.ReadDir("../channel")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		// Neither how buffers are kept nor how a guest is watched is said to anybody.
		if name := entry.Name(); strings.HasSuffix(name, "_test.go") || name == "buffers.go" || name == "guard.go" {
			continue
		}
		want, err := os.ReadFile("../channel/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := internal.Contract.ReadFile("channel/" + entry.Name()); err != nil || string(got) != string(want) {
			t.Errorf("channel/%s is not in the contract: %v", entry.Name(), err)
		}
	}
}

// TestFits: the contract decides, whatever the version.
func TestFits(t *testing.T) {
	_, contract, _ := strings.Cut(Build(), "+")
	for build, want := range map[string]bool{
		Build(): true, "0.0.1+" + contract: true, "9.9+" + contract: true,
		"": false, contract: false, Build() + "0": false, strings.Split(Build(), "+")[0]: false, "0.2.0+00000000": false,
	} {
		if Fits(build) != want {
			t.Errorf("%q: %v", build, !want)
		}
	}
}
