package web

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// redacted is what a body becomes that comes in pieces of size.
func redacted(t testing.TB, body string, size int, values ...string) string {
	t.Helper()
	var secret [][]byte
	for _, value := range values {
		secret = append(secret, []byte(value))
	}
	r, err := newRedaction(secret)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	from := io.Reader(&piecewise{data: []byte(body), size: size, end: io.EOF})
	if readErr, writeErr := pass(sink{w: w}, from, r.stream(), &stream{}); readErr != nil || writeErr != nil {
		t.Fatal(readErr, writeErr)
	}
	w.Flush()
	return out.String()
}

// stars is the same by the definition: slow, and of the whole text.
func stars(body string, values ...string) string {
	out := []byte(body)
	for _, value := range values {
		for i := 0; value != "" && i+len(value) <= len(body); i++ {
			if body[i:i+len(value)] == value {
				copy(out[i:], strings.Repeat("*", len(value)))
			}
		}
	}
	return string(out)
}

func TestRedact(t *testing.T) {
	long := strings.Repeat("k", maxRedacted)
	tests := []struct {
		body   string
		values []string
		want   string
	}{
		{"the key is sk-1.", []string{"sk-1"}, "the key is ****."},
		{"sk-1sk-1", []string{"sk-1"}, "********"},
		{"sk-sk-1", []string{"sk-1"}, "sk-****"},
		{"abcdef", []string{"abcd", "cdef"}, "******"},
		{"abcabcabd", []string{"abcabd"}, "abc******"},
		{"aaaa", []string{"aa"}, "****"},
		{"aXaa", []string{"aa", ""}, "aX**"},
		{"ends with sk-", []string{"sk-1"}, "ends with sk-"},
		{"inner", []string{"nn", "inner"}, "*****"},
		{"x" + long + "y", []string{long}, "x" + strings.Repeat("*", len(long)) + "y"},
		{"", []string{"x"}, ""},
	}
	for _, test := range tests {
		for _, size := range []int{1, 2, 3, 1 << 20} {
			if got := redacted(t, test.body, size, test.values...); got != test.want {
				t.Errorf("%.40q in pieces of %d: %.40q", test.body, size, got)
			}
		}
	}
	if _, err := newRedaction([][]byte{[]byte(long + "k")}); err == nil || strings.Contains(err.Error(), "kkk") {
		t.Errorf("a giant value: %v", err)
	}
}

func TestRedactLongBodies(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var body strings.Builder
	for range 300_000 {
		body.WriteByte("ab"[random.IntN(2)])
	}
	values := []string{"abbaabba", "aaaaaaaaaaaaaaa", "babababab"}
	for _, size := range []int{977, copySize, 1 << 20} {
		r := iotest.HalfReader(strings.NewReader(body.String()))
		all, _ := io.ReadAll(r)
		if redacted(t, string(all), size, values...) != stars(body.String(), values...) {
			t.Errorf("pieces of %d", size)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("the key is sk-1.", "sk-1", "1.", uint8(3))
	f.Add("abcabcabd", "abcabd", "bcab", uint8(1))
	f.Add("aaaaaaa", "aaa", "aa", uint8(2))
	f.Fuzz(func(t *testing.T, body, a, b string, size uint8) {
		if len(a) > maxRedacted || len(b) > maxRedacted || len(body)*(len(a)+len(b)) > 1<<20 {
			return
		}
		if got, want := redacted(t, body, int(size)+1, a, b), stars(body, a, b); got != want {
			t.Fatalf("%q without %q and %q is %q, not %q", body, a, b, got, want)
		}
	})
}
