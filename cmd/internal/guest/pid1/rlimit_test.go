//go:build linux

package pid1

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestRebounded(t *testing.T) {
	const inf = unix.RLIM_INFINITY
	of := func(n uint64) unix.Rlimit { return unix.Rlimit{Cur: n, Max: n} }
	for _, test := range []struct {
		name                  string
		now, old, limit, want unix.Rlimit
	}{
		{"lowered", of(90), of(90), of(20), of(20)},
		{"raised", of(20), of(20), of(90), of(90)},
		{"the first", of(inf), of(inf), of(90), of(90)},
		{"done before", of(90), of(20), of(90), of(90)},
		{"less by its own wish", unix.Rlimit{Cur: 5, Max: 10}, of(20), of(90), unix.Rlimit{Cur: 5, Max: 10}},
		{"less for now", unix.Rlimit{Cur: 5, Max: 20}, of(20), of(90), unix.Rlimit{Cur: 5, Max: 90}},
		{"less, and yet too much", unix.Rlimit{Cur: 50, Max: 80}, of(90), of(60), unix.Rlimit{Cur: 50, Max: 60}},
		{"more", of(inf), of(90), of(60), of(60)},
		{"more than what is raised", of(inf), of(20), of(60), of(60)},
	} {
		got := rebounded(test.now, test.old, test.limit)
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if again := rebounded(got, test.old, test.limit); again != got {
			t.Errorf("%s: then %v", test.name, again)
		}
	}
}
