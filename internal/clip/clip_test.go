package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s                           string
		n                           int
		head, tail, ellipsis, chars string
	}{
		{"", 0, "", "", "", ""},
		{"a", 0, "", "", "…", "…"},
		{"a", -1, "", "", "…", "…"},
		{"abc", 3, "abc", "abc", "abc", "abc"},
		{"abc", 2, "ab", "bc", "ab…", "ab…"},
		{"aé", 2, "a", "é", "a…", "aé"},
		{"éa", 2, "é", "a", "é…", "éa"},
		{"日本", 3, "日", "本", "日…", "日本"},
		{"日本", 4, "日", "本", "日…", "日本"},
		{"日本", 5, "日", "本", "日…", "日本"},
		{"日本", 1, "", "", "…", "日…"},
		{"😀😀", 7, "😀", "😀", "😀…", "😀😀"},
		{"a  b", 3, "a  ", "  b", "a  …", "a…"},
		{"a\xffb", 3, "a\xffb", "a\xffb", "a\xffb", "a\xffb"},
		{"a\xffbc", 3, "ab", "bc", "ab…", "a\xffb…"},
		{"\x80\x80\x80\x80\x80", 4, "", "", "…", "\x80\x80\x80\x80…"},
	} {
		for name, got := range map[string][2]string{
			"Head": {clip.Head(c.s, c.n), c.head}, "Tail": {clip.Tail(c.s, c.n), c.tail},
			"Ellipsis": {clip.Ellipsis(c.s, c.n), c.ellipsis}, "Chars": {clip.Chars(c.s, c.n), c.chars},
		} {
			if got[0] != got[1] {
				t.Errorf("%s(%q, %d) = %q, want %q", name, c.s, c.n, got[0], got[1])
			}
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		s           string
		head, tail  int
		first, last string
		gone        int
	}{
		{"", 0, 0, "", "", 0},
		{"abcdef", 3, 3, "abcdef", "", 0},
		{"abcdef", 9, 0, "abcdef", "", 0},
		{"abcdef", 2, 3, "ab", "def", 1},
		{"abcdef", 0, 2, "", "ef", 4},
		{"abcdef", -5, -5, "", "", 6},
		{"éééé", 3, 3, "é", "é", 4},
		{"😀-😀", 3, 3, "", "", 9},
		{"😀-😀", 5, 3, "😀-", "", 4},
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80", 2, 5, "\x80\x80", "\x80\x80", 5},
	} {
		if first, last, gone := clip.Middle(c.s, c.head, c.tail); first != c.first || last != c.last || gone != c.gone {
			t.Errorf("Middle(%q, %d, %d) = %q, %q, %d", c.s, c.head, c.tail, first, last, gone)
		}
	}
}

func TestIncomplete(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "a": 0, "é": 0, "😀": 0, "a\xc3": 1, "\xe6\x97": 2, "a\xf0\x9f\x98": 3,
		"\x80": 0, "\x80\x80\x80\x80": 0, "\xff": 0, "\xc3a": 0, "\xf0\x9f\x98\xc3": 1,
	} {
		if got := clip.Incomplete(s); got != want {
			t.Errorf("Incomplete(%q) = %d, want %d", s, got, want)
		}
		if got := clip.Incomplete([]byte(s)); got != want {
			t.Errorf("Incomplete([]byte(%q)) = %d, want %d", s, got, want)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("aé日😀", 5, 3)
	f.Add("\xf0\x9f\x98", 1, 1)
	f.Add("\x80\x80\x80\x80\x80\x80\x80", 2, -1)
	f.Fuzz(func(t *testing.T, s string, n, m int) {
		head, tail := clip.Head(s, n), clip.Tail(s, n)
		for _, cut := range []string{head, tail} {
			if len(s) <= n && cut != s || len(s) > n && (len(cut) > max(n, 0) || !utf8.ValidString(cut)) {
				t.Errorf("%q, %d: %q", s, n, cut)
			}
		}
		first, last, gone := clip.Middle(s, n, m)
		if !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) || len(first)+len(last)+gone != len(s) {
			t.Errorf("%q, %d, %d: %q, %q, %d", s, n, m, first, last, gone)
		}
		if gone > 0 && (len(first) > max(n, 0) || len(last) > max(m, 0)) {
			t.Errorf("%q, %d, %d: %q, %q", s, n, m, first, last)
		}
		chars := strings.TrimSuffix(clip.Chars(s, n), "…")
		if chars != s && (utf8.RuneCountInString(chars) > max(n, 0) || !strings.HasPrefix(s, chars)) {
			t.Errorf("%q, %d: %q", s, n, chars)
		}
		if !utf8.ValidString(s) {
			return
		}
		if len(s) > n && !strings.HasPrefix(s, head) || len(s) > n && !strings.HasSuffix(s, tail) {
			t.Errorf("%q, %d: %q, %q", s, n, head, tail)
		}
		if len(s) > n && n > 0 && n-len(head) >= utf8.UTFMax || !utf8.ValidString(first+last) || clip.Incomplete(s) != 0 {
			t.Errorf("%q, %d, %d: %q, %q, %q", s, n, m, head, first, last)
		}
	})
}
