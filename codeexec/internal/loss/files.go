package loss

import "sync"

// maxIDs bounds how many execution ids are known exactly.
const maxIDs = 16 << 10

// Files counts the losses of a place that has the files of all execution ids and can only
// be lost as a whole, and remembers the count that each id was told last. The zero value
// is ready to use. It is safe for concurrent use.
type Files struct {
	mu        sync.Mutex
	losses    int
	seen      map[string]int // the value of losses when See was last called for the id
	forgotten Names          // ids that are not in seen any more
}

// Lose notes that the files of all ids are gone.
func (f *Files) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losses++
}

// See notes that id uses the files that are there now. count, from 1, is for
// [codeexec.Instance.Files]. lost says that id has used files before, and that they have
// been lost since.
func (f *Files) See(id string) (count int, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.seen[id]
	switch {
	case known:
		lost = before < f.losses
	case f.losses > 0:
		lost = f.forgotten.Has(id)
	}
	if f.seen == nil {
		f.seen = map[string]int{}
	}
	if !known && len(f.seen) >= maxIDs {
		for other := range f.seen { // any
			f.forgotten.Add(other)
			delete(f.seen, other)
			break
		}
	}
	f.seen[id] = f.losses
	return f.losses + 1, lost
}
