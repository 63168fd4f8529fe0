package web

import (
	"bytes"
	"fmt"
	"slices"
)

// maxRedacted bounds a value that is redacted, in bytes: as much can be held back.
const maxRedacted = 16 << 10

// redaction is what must not be seen in answers. It is safe for concurrent use.
type redaction struct{ patterns []pattern }

type pattern struct {
	value []byte
	// back[i] is the length of the longest proper prefix of value that ends
	// value[:i+1]: where a search goes on behind a byte that does not fit (Knuth,
	// Morris and Pratt). The search is linear whatever the server sends.
	back []int
}

// newRedaction returns nil if there is nothing to redact.
func newRedaction(values [][]byte) (*redaction, error) {
	r := &redaction{}
	for _, value := range values {
		if len(value) == 0 {
			continue
		}
		if len(value) > maxRedacted {
			return nil, fmt.Errorf("a value of %d bytes cannot be redacted, at most %d", len(value), maxRedacted)
		}
		p := pattern{bytes.Clone(value), make([]int, len(value))}
		for i, k := 1, 0; i < len(value); i++ {
			for k > 0 && value[k] != value[i] {
				k = p.back[k-1]
			}
			if value[k] == value[i] {
				k++
			}
			p.back[i] = k
		}
		r.patterns = append(r.patterns, p)
	}
	if len(r.patterns) == 0 {
		return nil, nil
	}
	return r, nil
}

// text returns s with stars for what must not be seen. A nil redaction hides nothing.
func (r *redaction) text(s string) string {
	if r == nil {
		return s
	}
	b := []byte(s)
	r.stream().scan(b, len(b))
	return string(b)
}

// stream returns a redactor for one body; nil for a nil redaction.
func (r *redaction) stream() *redactor {
	if r == nil {
		return nil
	}
	return &redactor{r, make([]int, len(r.patterns)), nil}
}

// redactor replaces the values in a stream. What could be the beginning of one is
// held back until it is known.
type redactor struct {
	*redaction
	matched []int // of each pattern, how many of its bytes end what was read
	hits    []span
}

type span struct{ from, to int }

// scan takes the last fresh bytes of buf, behind those that were held back, puts
// stars where values are, and returns how many of buf's bytes are final; the caller
// gives it the others again, in front of what follows.
func (r *redactor) scan(buf []byte, fresh int) (final int) {
	// Values may overlap: all are found before the first star is written.
	r.hits = r.hits[:0]
	for i, p := range r.patterns {
		r.matched[i] = r.find(p, r.matched[i], buf, len(buf)-fresh)
	}
	for _, hit := range r.hits {
		for at := max(hit.from, 0); at < hit.to; at++ {
			buf[at] = '*'
		}
	}
	return max(len(buf)-slices.Max(r.matched), 0)
}

// find goes on with p at buf[at:], of whose value the first matched bytes were read.
func (r *redactor) find(p pattern, matched int, buf []byte, at int) int {
	first := len(r.hits)
	for at < len(buf) {
		if matched == 0 {
			next := bytes.IndexByte(buf[at:], p.value[0])
			if next < 0 {
				return 0
			}
			at += next
		}
		for matched > 0 && p.value[matched] != buf[at] {
			matched = p.back[matched-1]
		}
		if p.value[matched] == buf[at] {
			matched++
		}
		at++
		if matched == len(p.value) {
			matched = p.back[matched-1]
			hit := span{at - len(p.value), at}
			if n := len(r.hits); n > first && r.hits[n-1].to >= hit.from {
				r.hits[n-1].to = hit.to
			} else {
				r.hits = append(r.hits, hit)
			}
		}
	}
	return matched
}

// mayRelease says that what is held back is so little of every value that it may
// be shown if nothing follows for a while: a message may end with it.
func (r *redactor) mayRelease() bool {
	for i, p := range r.patterns {
		if r.matched[i] > len(p.value)/4 {
			return false
		}
	}
	return true
}
