package flagvalue_test

import (
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/flagvalue"
)

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64 // 0: refused
	}{
		{"512MiB", 512 << 20}, {"1GiB", 1 << 30}, {"1.5GiB", 3 << 29}, {"10mb", 10_000_000}, {"64k", 64 << 10},
		{"10 MiB", 10 << 20}, {"123", 123}, {"7b", 7}, {" 1g ", 1 << 30},
		{"", 0}, {"0", 0}, {"-1", 0}, {"1e9", 0}, {"inf", 0}, {"nan", 0}, {"MiB", 0}, {"1.2.3", 0}, {"9999999TiB", 0}, {"1 XiB", 0},
	} {
		if got, err := flagvalue.ParseSize(tt.in); got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%q: %d, %v; want %d", tt.in, got, err, tt.want)
		}
	}
}

func TestSizesPrintAsTheyAreRead(t *testing.T) {
	for _, s := range []string{"512MiB", "1GiB", "10MiB", "123"} {
		var b flagvalue.Size
		if err := b.Set(s); err != nil || b.String() != s {
			t.Errorf("%s became %s, %v", s, b.String(), err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("1.5GiB")
	f.Fuzz(func(t *testing.T, in string) {
		if n, err := flagvalue.ParseSize(in); (err == nil) != (n > 0) {
			t.Errorf("%q: %d, %v", in, n, err)
		}
	})
}

func TestPairs(t *testing.T) {
	got, err := flagvalue.Pairs("env", []string{"A=1", "B=", "A=2=3"})
	if err != nil || len(got) != 2 || got["A"] != "2=3" || got["B"] != "" {
		t.Errorf("%q, %v", got, err)
	}
	for _, wrong := range []string{"", "A", "=1", "A=\x00"} {
		if _, err := flagvalue.Pairs("env", []string{wrong}); err == nil {
			t.Errorf("%q is a pair", wrong)
		}
	}
}
