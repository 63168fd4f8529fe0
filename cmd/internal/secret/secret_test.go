package secret

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestTokens: a token is always the same, and of nothing else.
func TestTokens(t *testing.T) {
	key, other := New(), New()
	again, err := Parse(key.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	token := key.Token(Access, "i1", 1)
	if len(token) != 48 || again.Token(Access, "i1", 1) != token {
		t.Errorf("%q, then %q", token, again.Token(Access, "i1", 1))
	}
	seen := map[string]string{}
	for _, k := range []*Key{key, other} {
		for _, purpose := range []Purpose{Access, Traffic, Host} {
			for _, id := range []string{"i1", "i2", "i11"} {
				for _, generation := range []uint32{1, 2, 11} {
					token := k.Token(purpose, id, generation)
					name := fmt.Sprint(k == key, purpose, id, generation)
					if was, ok := seen[token]; ok {
						t.Errorf("%s and %s have the same token", name, was)
					}
					seen[token] = name
				}
			}
		}
	}
}

// TestCheck: a token is good for its key, purpose and id, and says which
// generation it is of.
func TestCheck(t *testing.T) {
	key := New()
	token := key.Token(Access, "i1", 7)
	for _, test := range []struct {
		name       string
		key        *Key
		purpose    Purpose
		id, token  string
		generation uint32
		ok         bool
	}{
		{"its own", key, Access, "i1", token, 7, true},
		{"another key", New(), Access, "i1", token, 7, false},
		{"another purpose", key, Traffic, "i1", token, 7, false},
		{"another sandbox", key, Access, "i2", token, 7, false},
		{"another generation in its place", key, Access, "i1", token[:40] + "00000008", 8, false},
		{"upper case", key, Access, "i1", strings.ToUpper(token), 7, false},
		{"cut off", key, Access, "i1", token[:46], 0, false},
		{"longer", key, Access, "i1", token + "00", 0, false},
		{"none", key, Access, "i1", "", 0, false},
		{"no number", key, Access, "i1", strings.Repeat("x", 48), 0, false},
	} {
		generation, ok := test.key.Check(test.purpose, test.id, test.token)
		if ok != test.ok || generation != test.generation {
			t.Errorf("%s: %d, %v", test.name, generation, ok)
		}
	}
}

// TestSeal: what is sealed is read with its key and for its id, and else not.
func TestSeal(t *testing.T) {
	key := New()
	for _, plain := range []string{"", "PASSWORD=hunter2", strings.Repeat("x", 1<<20)} {
		sealed := key.Seal("i1", []byte(plain))
		if got, err := key.Open("i1", sealed); err != nil || string(got) != plain {
			t.Errorf("%d bytes: %d, %v", len(plain), len(got), err)
		}
		if plain != "" && bytes.Contains(sealed, []byte(plain)) {
			t.Errorf("%d bytes are to be read", len(plain))
		}
		if bytes.Equal(sealed, key.Seal("i1", []byte(plain))) {
			t.Errorf("%d bytes are sealed alike twice", len(plain))
		}
	}
	sealed := key.Seal("i1", []byte("PASSWORD=hunter2"))
	changed := bytes.Clone(sealed)
	changed[len(changed)/2] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another key":    func() ([]byte, error) { return New().Open("i1", sealed) },
		"another id":     func() ([]byte, error) { return key.Open("i2", sealed) },
		"a changed byte": func() ([]byte, error) { return key.Open("i1", changed) },
		"cut off":        func() ([]byte, error) { return key.Open("i1", sealed[:len(sealed)-1]) },
		"nothing":        func() ([]byte, error) { return key.Open("i1", nil) },
	} {
		if got, err := open(); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestParse: a key has its length, and shows itself only to who asks for it.
func TestParse(t *testing.T) {
	for _, n := range []int{0, Size - 1, Size + 1} {
		if _, err := Parse(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are a key", n)
		}
	}
	key, err := Parse(bytes.Repeat([]byte("k"), Size))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if shown := fmt.Sprintf(format, key); strings.Contains(shown, "kkk") || strings.Contains(shown, "107") {
			t.Errorf("%s shows %s", format, shown)
		}
	}
	if bytes.Equal(key.Fingerprint(), New().Fingerprint()) || !bytes.Equal(key.Fingerprint(), key.Fingerprint()) {
		t.Error("fingerprints do not tell keys apart")
	}
}
