//go:build linux

package images

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// mounted is a folder on a new file system of a kind, in a file.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	mkfs, err := exec.LookPath("mkfs." + kind)
	if err != nil {
		t.Skip(err)
	}
	file, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 512<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", file, dir).CombinedOutput(); err != nil {
		t.Skipf("this kernel mounts no %s: %v: %s", kind, err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "images")
}

// random is n bytes.
func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// TestShare: an image that is like another takes room for what differs, also where equal
// parts are elsewhere, and is whole when the other is gone or was changed.
func TestShare(t *testing.T) {
	const mb = 1 << 20
	for _, kind := range []string{"xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			cfg := Config{Dir: mounted(t, kind), Key: secret.New()}
			s := open(t, cfg)
			s.sync = (*os.File).Sync // what takes room shows on disk
			if !s.Sharing() {
				t.Fatal("files cannot share room")
			}
			used := func() int64 {
				var st unix.Statfs_t
				if err := unix.Statfs(s.dir, &st); err != nil {
					t.Fatal(err)
				}
				unix.Sync()
				if err := unix.Statfs(s.dir, &st); err != nil {
					t.Fatal(err)
				}
				return int64(st.Blocks-st.Bfree) * st.Bsize
			}
			old := random(64*mb + 100)
			v1 := contents{"pages.img": old, "state": random(100)}
			create(t, s, "i1", v1)
			// Pages were inserted, changed, and removed.
			v2 := contents{"pages.img": nil, "state": random(100)}
			for _, part := range [][]byte{
				old[:8*pageSize], random(mb), old[8*pageSize : 30*mb], random(pageSize), old[30*mb+pageSize : 40*mb], old[41*mb:],
			} {
				v2["pages.img"] = append(v2["pages.img"], part...)
			}
			before := used()
			if _, err := s.Create(t.Context(), "snapshot", Options{Like: "i1"}, v2.write); err != nil {
				t.Fatal(err)
			}
			if grown := used() - before; grown > 4*mb {
				t.Errorf("an image that is like another takes %d bytes", grown)
			}
			use(t, s, "snapshot", v2)
			if err := s.Remove("snapshot"); err != nil {
				t.Fatal(err)
			}

			// A sandbox goes on, and is paused again.
			if err := s.Shelve("i1"); err != nil {
				t.Fatal(err)
			}
			if has, err := s.Has("i1"); has || err != nil {
				t.Error(has, err)
			}
			for name, r := range s.gone {
				if !r.shelved {
					t.Errorf("%s: %+v", name, r)
				}
				flip(t, filepath.Join(s.dir, r.folders[0], "pages.img"), 20*mb)
			}
			before = used()
			create(t, s, "i1", v2)
			if grown := used() - before; grown > 2*mb { // and the older one is gone
				t.Errorf("an image that is like one that was shelved takes %d bytes", grown)
			}
			if left := names(t, s.dir); len(left) != 2 {
				t.Errorf("left: %v", left)
			}
			use(t, s, "i1", v2)
			use(t, open(t, cfg), "i1", v2)
		})
	}
}

// TestShelved: what was shelved makes room, is no image, and goes with its id.
func TestShelved(t *testing.T) {
	cfg := Config{Dir: mounted(t, "btrfs"), Budget: 20 << 20}
	s := open(t, cfg)
	shelve := func() {
		create(t, s, "i1", some(1))
		if err := s.Shelve("i1"); err != nil {
			t.Fatal(err)
		}
		if usage, err := s.Usage(); err != nil || usage.Images < 6<<20 {
			t.Errorf("%+v, %v", usage, err)
		}
		if has, err := s.Has("i1"); has || err != nil {
			t.Error(has, err)
		}
	}
	shelve()
	if _, err := s.Create(t.Context(), "i2", Options{Reserve: 19 << 20}, some(2).write); err != nil {
		t.Error(err)
	}
	if left := names(t, s.dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	shelve()
	if err := s.Remove("i1"); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	shelve()
	s = open(t, cfg)
	if left := names(t, s.dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

// TestShelveWithoutSharing: where files cannot share room nothing is kept.
func TestShelveWithoutSharing(t *testing.T) {
	s := open(t, Config{Dir: tmpfs(t, 64<<20)})
	if s.Sharing() {
		t.Skip("files share room on a tmpfs")
	}
	create(t, s, "i1", some(1))
	create(t, s, "i2", some(1))
	if _, err := s.Create(t.Context(), "i3", Options{Like: "i2"}, some(1).write); err != nil {
		t.Fatal(err)
	}
	use(t, s, "i3", some(1))
	if err := s.Shelve("i1"); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.dir); len(left) != 4 {
		t.Errorf("left: %v", left)
	}
}

// TestCompare: stretches cover a file without gaps, and are equal where they say so.
func TestCompare(t *testing.T) {
	old := random(3*sampleSize + 123)
	repeated := make([]byte, 5*sampleSize)
	for name, pair := range map[string][2][]byte{
		"the same":           {old, old},
		"nothing":            {nil, nil},
		"nothing before":     {nil, old},
		"nothing now":        {old, nil},
		"half a page":        {old, old[:100]},
		"cut":                {old, old[:2*sampleSize+100]},
		"longer":             {old, append(append([]byte{}, old...), old...)},
		"moved":              {old, append(random(pageSize), old...)},
		"moved off a page":   {old, append(random(100), old...)},
		"zeros":              {repeated, append(append([]byte{}, repeated...), old...)},
		"every second page":  {repeated, stripes(repeated)},
		"parts change place": {old, append(append([]byte{}, old[sampleSize:2*sampleSize]...), old[:sampleSize]...)},
	} {
		t.Run(name, func(t *testing.T) {
			var files [2]*os.File
			for i, b := range pair {
				path := filepath.Join(t.TempDir(), fmt.Sprint(i))
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				files[i] = f
			}
			stretches, err := compare(files[1], files[0], int64(len(pair[1])))
			if err != nil {
				t.Fatal(err)
			}
			at, shared := int64(0), int64(0)
			for _, p := range stretches {
				if p.at != at || p.n <= 0 {
					t.Fatalf("%+v comes after %d", p, at)
				}
				at += p.n
				if p.older < 0 {
					continue
				}
				shared += p.n
				if p.n < minShared || p.n%pageSize != 0 || p.older%pageSize != 0 ||
					string(pair[0][p.older:p.older+p.n]) != string(pair[1][p.at:p.at+p.n]) {
					t.Errorf("%+v is not the same", p)
				}
			}
			if at != int64(len(pair[1])) {
				t.Errorf("ends at %d of %d", at, len(pair[1]))
			}
			want := map[string]int64{
				"the same": 3 * sampleSize, "moved": 3 * sampleSize, "cut": 2 * sampleSize, "longer": 3 * sampleSize,
				"parts change place": 2 * sampleSize,
			}[name]
			if shared < want {
				t.Errorf("%d bytes are shared, not %d", shared, want)
			}
		})
	}
}

// stripes has every second page of b changed.
func stripes(b []byte) []byte {
	b = append([]byte{}, b...)
	for at := 0; at < len(b); at += 2 * pageSize {
		b[at] = 1
	}
	return b
}
