package loss

import (
	"fmt"
	"testing"
)

// What was added is found, however much there is; what was not, hardly ever.
func TestNames(t *testing.T) {
	var n Names
	if n.Has("") || n.Has("a") {
		t.Error("an empty set has names")
	}
	const many = 200_000
	for i := range many {
		n.Add(fmt.Sprint("added", i))
	}
	wrong := 0
	for i := range many {
		if !n.Has(fmt.Sprint("added", i)) {
			t.Fatalf("%d is not found", i)
		}
		if n.Has(fmt.Sprint("other", i)) {
			wrong++
		}
	}
	if wrong > many/1000 {
		t.Errorf("%d of %d names were found that were never added", wrong, many)
	}
}

// Each id is told once, and an id that has been forgotten is told rather once too
// often than never.
func TestFiles(t *testing.T) {
	var f Files
	see := func(id string, count int, lost bool) {
		t.Helper()
		if c, l := f.See(id); c != count || l != lost {
			t.Errorf("%s: got %d, %v, want %d, %v", id, c, l, count, lost)
		}
	}
	see("a", 1, false)
	see("b", 1, false)
	see("a", 1, false)
	f.Lose()
	see("a", 2, true)
	see("a", 2, false)
	see("new", 2, false)
	f.Lose()
	see("b", 3, true)
	see("a", 3, true)

	for i := range maxIDs {
		f.See(fmt.Sprint(i))
	}
	if len(f.seen) > maxIDs {
		t.Errorf("%d ids are kept", len(f.seen))
	}
	f.Lose()
	for i := range maxIDs {
		if _, lost := f.See(fmt.Sprint(i)); !lost {
			t.Fatalf("%d was not told", i)
		}
	}
	see("a", 4, true)
}
