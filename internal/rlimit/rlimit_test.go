//go:build linux

package rlimit

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

func TestCheck(t *testing.T) {
	taken := func(n uint64) func(uint64) uint64 { return func(uint64) uint64 { return n } }
	files := need{name: "RLIMIT_NOFILE", least: 512, of: "open files", flag: "-n", unit: 1, advise: 4096, service: "LimitNOFILE", docker: "nofile"}
	bytes := need{name: "RLIMIT_AS", least: 6 * gib, of: "of address space", flag: "-v", unit: 1 << 10, advise: 64 * gib, service: "LimitAS"}
	shared := need{name: "RLIMIT_NPROC", least: 64, of: "processes", flag: "-u", unit: 1, advise: 4096, service: "LimitNPROC", docker: "nproc", used: taken(5000)}
	for _, test := range []struct {
		name  string
		need  need
		limit uint64
		want  []string // nothing: it is enough
	}{
		{"enough", files, 512, nil},
		{"too few", files, 511, []string{"at most 511 open files", "RLIMIT_NOFILE", "needs 512", "`ulimit -n 4096`", "LimitNOFILE=4096", "--ulimit nofile=4096"}},
		{"bytes", bytes, 3 * gib, []string{"at most 3072 MiB of address space", "needs 6144 MiB", "`ulimit -v unlimited`", "LimitAS=68719476736"}},
		{"few bytes", bytes, 100 << 10, []string{"at most 100 KiB of address space", "needs 6144 MiB"}},
		{"others have taken of it", shared, 5050, []string{"of which 5000 are taken", "`ulimit -u 10128`"}},
		{"others have left enough", shared, 5064, nil},
		{"so much that nobody counts", shared, 1 << 20, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.need.check(test.limit)
			if len(test.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := fault.In(err); e == nil || e.Code != fault.Unavailable || e.Hint == "" {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
		})
	}
}

func TestMostSandboxes(t *testing.T) {
	for descriptors, want := range map[uint64]int{20: 0, 511: 0, 512: 24, 1024: 56, 1 << 20: 65528} {
		if got := mostSandboxes(descriptors); got != want {
			t.Errorf("%d descriptors: %d, want %d", descriptors, got, want)
		}
	}
	if err := CheckSandboxes(1 << 40); err == nil {
		t.Error("more sandboxes than a machine can have are promised")
	}
}

// TestThisProcess reads what the system says of this process.
func TestThisProcess(t *testing.T) {
	if n := descriptors(0); n < 3 || n > 10000 {
		t.Errorf("%d descriptors", n)
	}
	if n := field("/proc/self/status", "Threads:"); n < 1 || n > 10000 {
		t.Errorf("%d threads", n)
	}
	if err := Check(); err != nil {
		t.Errorf("no sandbox can be started here: %v", err)
	}
	// Soft limits are raised to the hard ones.
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	if err := Explain(); err == nil || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Errorf("100 descriptors: %v", err)
	}
	if err := Raise(); err != nil {
		t.Fatal(err)
	}
	if limit, ok := get(unix.RLIMIT_NOFILE); !ok || limit.Cur != was.Max {
		t.Errorf("raised to %+v", limit)
	}
	if err := Explain(); err != nil {
		t.Error(err)
	}
}
