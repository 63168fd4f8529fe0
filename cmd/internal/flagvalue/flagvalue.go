// Package flagvalue reads the values of flags that several commands have.
package flagvalue

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40},
	{"b", 1}, {"", 1},
}

// Size is a flag that holds a size in bytes.
type Size int64

// Type names it in a help text.
func (b *Size) Type() string { return "size" }

// String is the size in the largest unit of which it is a whole number.
func (b *Size) String() string {
	n := int64(*b)
	switch {
	case n >= 1<<40 && n%(1<<40) == 0:
		return strconv.FormatInt(n>>40, 10) + "TiB"
	case n >= 1<<30 && n%(1<<30) == 0:
		return strconv.FormatInt(n>>30, 10) + "GiB"
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + "MiB"
	}
	return strconv.FormatInt(n, 10)
}

// Long is the size with its unit, for sentences.
func (b Size) Long() string {
	if s := b.String(); strings.HasSuffix(s, "B") {
		return s
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// Set reads it.
func (b *Size) Set(s string) error {
	n, err := ParseSize(s)
	if err == nil {
		*b = Size(n)
	}
	return err
}

// ParseSize reads 512MiB, 1.5GiB, 10MB, 64k or plain bytes; always positive.
func ParseSize(s string) (int64, error) {
	lower := strings.ToLower(strings.TrimSpace(s))
	for _, u := range units {
		number, ok := strings.CutSuffix(lower, u.suffix)
		if !ok {
			continue
		}
		number = strings.TrimSpace(number)
		if strings.Trim(number, "0123456789.") != "" {
			break
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			break
		}
		n = math.Ceil(n * u.bytes)
		if n < 1 || n >= 1<<60 {
			return 0, errors.New("out of range: at least one byte")
		}
		return int64(n), nil
	}
	return 0, errors.New("not a size: write 512MiB, 1GiB or a number of bytes")
}

// Pairs reads the values NAME=VALUE of a flag that is given once for each pair.
func Pairs(flag string, list []string) (map[string]string, error) {
	pairs := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" || strings.ContainsRune(kv, 0) {
			return nil, fmt.Errorf("--%s %q: write NAME=VALUE", flag, kv)
		}
		pairs[k] = v
	}
	return pairs, nil
}
