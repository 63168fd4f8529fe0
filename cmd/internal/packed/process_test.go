//go:build linux

package packed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/internal/namespace"
)

// Variables of a process that is a front: where its packed program is, and a run folder.
const (
	packVar = "CUBBY_PACKED_TEST_PACK"
	runVar  = "CUBBY_PACKED_TEST_RUN"
)

// front is what cubby does: it finds its program, or unpacks it, and becomes it.
func front() error {
	pack := os.Getenv(packVar)
	sum, err := os.ReadFile(pack + ".sum")
	if err != nil {
		return err
	}
	zst, err := os.ReadFile(pack + ".zst")
	if err != nil {
		return err
	}
	p := New("cubby-engine", string(sum), zst, "CUBBY_ENGINE")
	os.Setenv(roleVar, "payload")
	from := From("ready")
	fd, ok := ready.Ready(p.Want())
	if !ok {
		l, err := Open(context.Background(), p, Options{RunDir: os.Getenv(runVar)})
		if err != nil {
			return err
		}
		from, fd = l.From, int(l.File.Fd())
	}
	fmt.Printf("from %s ", from)
	return ready.Exec(fd, []string{"cubby-engine"}, os.Environ())
}

// writePack writes what fronts read.
func writePack(t testing.TB, dir string, p Program) string {
	t.Helper()
	pack := filepath.Join(dir, "pack-"+p.SHA256[:8])
	for suffix, text := range map[string][]byte{".sum": fmt.Appendf(nil, "%s %d\n", p.SHA256, p.Size), ".zst": p.Zstd} {
		if err := os.WriteFile(pack+suffix, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return pack
}

// user is a plain one with a home, and a copy of this test binary that it may run.
type user struct {
	uid  int // 0: the tests' own user
	dir  string
	exe  string
	pack string
	env  []string // after HOME and the rest, which it may override
	attr *syscall.SysProcAttr
}

// newUser makes one whose program is packed; uid 0 is the tests' own user.
func newUser(t testing.TB, uid int, p Program) *user {
	t.Helper()
	dir := folder(t)
	// Folders of tests are closed to others.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := self()
	if err != nil {
		t.Fatal(err)
	}
	u := &user{uid: uid, dir: dir, exe: filepath.Join(dir, "bin", "cubby"), pack: writePack(t, dir, p)}
	if err := os.WriteFile(u.exe, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(u.home(), 0o755); err != nil {
		t.Fatal(err)
	}
	if uid != 0 {
		if os.Getuid() != 0 || !mapsAll() {
			t.Skip("needs root, to be another user")
		}
		if err := os.Chown(u.home(), uid, uid); err != nil {
			t.Fatal(err)
		}
		u.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return u
}

func mapsAll() bool {
	text, _ := os.ReadFile("/proc/self/uid_map")
	return strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
}

func (u *user) home() string { return filepath.Join(u.dir, "home") }

// cache is where its programs are unpacked; not for root.
func (u *user) cache() string { return filepath.Join(u.home(), ".cache", "cubby") }

func (u *user) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.exe)
	cmd.Env = append([]string{roleVar + "=front", packVar + "=" + u.pack, "HOME=" + u.home(), "PATH=" + os.Getenv("PATH")}, u.env...)
	cmd.SysProcAttr = u.attr
	return cmd
}

// start runs a front to its end, and returns where its program came from.
func (u *user) start(t testing.TB, p Program) string {
	t.Helper()
	out, err := u.command(t.Context()).CombinedOutput()
	from, rest, _ := strings.Cut(string(out), " payload ")
	if err != nil || rest != p.SHA256+"\n" {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimPrefix(from, "from ")
}

const plain = 23456 // a user whom nobody is

// settled is what is in a cache when one version was unpacked there.
func settled(p Program) []string {
	names := []string{lockName, ready.NotesName, p.Want().FileName()}
	slices.Sort(names)
	return names
}

// private gives a test's processes /var/cache of their own, where it is root.
func private(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 || !mapsAll() {
		t.Skip("needs root, whose cache is /var/cache")
	}
	mount(t, "/var/cache", "mode=755", 0)
	return "/var/cache/cubby"
}

// mount mounts a tmpfs until the test ends.
func mount(t testing.TB, path, options string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("none", path, "tmpfs", flags, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
}

// TestFirstStartsAtOnce: of two hundred processes one unpacks the program, and all run it.
func TestFirstStartsAtOnce(t *testing.T) {
	const starts = 200
	p := program(t, "one")
	for _, tt := range []struct {
		name string
		uid  int
	}{{"root", 0}, {"plain user", plain}} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUser(t, tt.uid, p)
			cache := u.cache()
			if tt.uid == 0 {
				cache = private(t)
			}
			var group sync.WaitGroup
			outs := make([]string, starts)
			for i := range starts {
				group.Go(func() {
					cmd := u.command(t.Context())
					cmd.Env = append(cmd.Env, inodeVar+"=1")
					out, err := cmd.CombinedOutput()
					outs[i] = string(out)
					if err != nil {
						outs[i] += err.Error()
					}
				})
			}
			group.Wait()
			inodes := map[string]bool{}
			for _, out := range outs {
				_, who, _ := strings.Cut(out, " payload ")
				sum, inode, ok := strings.Cut(strings.TrimSpace(who), " ")
				if !ok || sum != p.SHA256 {
					t.Fatalf("a start: %s", out)
				}
				inodes[inode] = true
			}
			if len(inodes) != 1 {
				t.Errorf("%d files ran: the program was unpacked more than once", len(inodes))
			}
			if got := files(t, cache); !slices.Equal(got, settled(p)) {
				t.Errorf("the cache has %q", got)
			}
			if from := u.start(t, p); from != "ready" {
				t.Errorf("the next one is from %s", from)
			}
		})
	}
}

// TestKilled: whenever the process that unpacks is killed, the next one starts, and
// nothing of the first is left.
func TestKilled(t *testing.T) {
	p := program(t, "one")
	u := newUser(t, plain, p)
	partial := 0
	for i := range 40 {
		if err := os.RemoveAll(u.cache()); err != nil {
			t.Fatal(err)
		}
		cmd := u.command(t.Context())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // while it writes
			for deadline := time.Now().Add(time.Minute); !slices.ContainsFunc(list(u.cache()), isAside); {
				if slices.Contains(list(u.cache()), p.Want().FileName()) || time.Now().After(deadline) {
					break // too late
				}
			}
		} else {
			time.Sleep(rand.N(30 * time.Millisecond))
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if slices.ContainsFunc(list(u.cache()), isAside) {
			partial++
		}
		u.start(t, p)
		if got := files(t, u.cache()); !slices.Equal(got, settled(p)) {
			t.Fatalf("the cache has %q", got)
		}
		if from := u.start(t, p); from != "ready" {
			t.Fatalf("the next one is from %s", from)
		}
	}
	if partial == 0 {
		t.Error("none was killed while it wrote")
	}
}

func isAside(name string) bool { return strings.HasSuffix(name, asideSuffix) }

func list(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPlaceCannotBeUsed: a cache that is full, may not execute, cannot be written or is
// not the user's own is passed over; the program runs, and nothing is left in the cache.
func TestPlaceCannotBeUsed(t *testing.T) {
	p := program(t, "one")
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, cache string)
		left    []string
	}{
		{"full disk", func(t *testing.T, cache string) { mount(t, cache, "size=1m,mode=755", 0) }, []string{lockName}},
		{"no inodes", func(t *testing.T, cache string) { mount(t, cache, "nr_inodes=2,mode=755", 0) }, []string{lockName}},
		{"noexec", func(t *testing.T, cache string) { mount(t, cache, "mode=755", unix.MS_NOEXEC) }, nil},
		{"read-only", func(t *testing.T, cache string) { mount(t, cache, "mode=755", unix.MS_RDONLY) }, nil},
		{"group may write", func(t *testing.T, cache string) { chmod(t, cache, 0o775) }, nil},
		{"sticky, others may write", func(t *testing.T, cache string) { chmod(t, cache, 0o777|os.ModeSticky) }, nil},
		{"a parent that others may write", func(t *testing.T, cache string) { chmod(t, filepath.Dir(cache), 0o777) }, nil},
		{"another user's", func(t *testing.T, cache string) { chown(t, cache, plain) }, nil},
		{"a file", func(t *testing.T, cache string) {
			if err := errors.Join(os.Remove(cache), os.WriteFile(cache, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"another user's link", func(t *testing.T, cache string) {
			if err := errors.Join(os.Rename(cache, cache+"-real"), os.Symlink(cache+"-real", cache)); err != nil {
				t.Fatal(err)
			}
			chown(t, cache, plain)
		}, nil},
		{"a locked folder", func(t *testing.T, cache string) {
			lock := filepath.Join(cache, lockName)
			if err := os.Mkdir(lock, 0o755); err != nil {
				t.Fatal(err)
			}
		}, []string{lockName}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t)
			o := Options{place: places(dir), RunDir: filepath.Join(dir, "run")}
			for _, d := range []string{o.place.Cache, o.RunDir} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			tt.prepare(t, o.place.Cache)
			before := descriptors(t)
			l, err := Open(t.Context(), p, o)
			if err != nil {
				t.Fatal(err)
			}
			if l.From != FromRunDir || len(l.Passed) != 1 {
				t.Errorf("from %s, %v", l.From, l.Passed)
			}
			runs(t, l, p)
			l.Close()
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, %d before", after, before)
			}
			if got := list(o.place.Cache); !slices.Equal(got, tt.left) {
				t.Errorf("the cache has %q", got)
			}
			if found(p, o.place) {
				t.Error("ready")
			}
		})
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// Go keeps one for each process that it started, until it collects it.
		if name, _ := os.Readlink("/proc/self/fd/" + e.Name()); !strings.Contains(name, "pidfd") {
			n++
		}
	}
	return n
}

func chmod(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func chown(t testing.TB, path string, uid int) {
	t.Helper()
	if os.Getuid() != 0 || !mapsAll() {
		t.Skip("needs root, to give a file away")
	}
	if err := os.Lchown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}

// TestReadOnly: a place that cannot be written has the program already.
func TestReadOnly(t *testing.T) {
	p := program(t, "one")
	dir := folder(t)
	o := Options{place: places(dir)}
	cache := o.place.Cache
	if err := os.Mkdir(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, cache, "mode=755", 0)
	open(t, p, o).Close()
	readOnly := func() {
		if err := unix.Mount("none", cache, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
	readOnly()
	if !found(p, o.place) {
		t.Error("not ready with its note")
	}
	if err := unix.Mount("none", cache, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(cache, ready.NotesName)); err != nil {
		t.Fatal(err)
	}
	readOnly()
	l := open(t, p, o)
	if l.From != FromCache {
		t.Errorf("from %s: %v", l.From, l.Passed)
	}
	runs(t, l, p)
	l.Close()
}

// TestPlanted: whatever is in the place of the program and of its note, the right content
// runs, and is there afterwards.
func TestPlanted(t *testing.T) {
	p := program(t, "one")
	write := func(t *testing.T, path, tag string, mode os.FileMode) {
		t.Helper()
		os.Remove(path)
		put(t, path, tag, mode)
	}
	notes := func(t *testing.T, path, sum string, mode os.FileMode) string {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(filepath.Dir(path), ready.NotesName)
		os.Remove(file)
		if err := os.WriteFile(file, []byte(ready.Key(&st)+sum+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		chmod(t, file, mode)
		return file
	}
	for _, tt := range []struct {
		name  string
		plant func(t *testing.T, path string)
	}{
		{"another program of the same length", func(t *testing.T, path string) { write(t, path, "two", 0o555) }},
		{"one that was not written to its end", func(t *testing.T, path string) { write(t, path, "", 0o555) }},
		{"the right one, which its owner may write", func(t *testing.T, path string) { write(t, path, "one", 0o755) }},
		{"the right one, which all may write", func(t *testing.T, path string) { write(t, path, "one", 0o777) }},
		{"a link to another one", func(t *testing.T, path string) {
			os.Rename(path, path+"-moved")
			if err := os.Symlink(path+"-moved", path); err != nil {
				t.Fatal(err)
			}
		}},
		{"a named pipe", func(t *testing.T, path string) {
			os.Remove(path)
			if err := unix.Mkfifo(path, 0o555); err != nil {
				t.Fatal(err)
			}
		}},
		{"one whose bytes and dates were changed", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			chmod(t, path, 0o755)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte("two"), info.Size()-3)
			if err := errors.Join(err, f.Close(), os.Chmod(path, 0o555), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
				t.Fatal(err)
			}
		}},
		{"another user's, with the right bytes", func(t *testing.T, path string) { chown(t, path, plain) }},
		{"another program, with a note by another user", func(t *testing.T, path string) {
			write(t, path, "two", 0o555)
			chown(t, notes(t, path, p.SHA256, 0o444), plain)
		}},
		{"another program, with a note that all may write", func(t *testing.T, path string) {
			write(t, path, "two", 0o555)
			notes(t, path, p.SHA256, 0o666)
		}},
		{"another program, with its own note", func(t *testing.T, path string) {
			write(t, path, "two", 0o555)
			notes(t, path, program(t, "two").SHA256, 0o444)
		}},
		{"another program, with half a note", func(t *testing.T, path string) {
			write(t, path, "two", 0o555)
			file := notes(t, path, p.SHA256, 0o600)
			info, err := os.Stat(file)
			if err := errors.Join(err, os.Truncate(file, info.Size()-1)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a large note", func(t *testing.T, path string) {
			write(t, path, "two", 0o555)
			file := notes(t, path, p.SHA256, 0o600)
			if err := os.Truncate(file, 1<<30); err != nil {
				t.Fatal(err)
			}
		}},
		{"no note", func(t *testing.T, path string) { os.Remove(filepath.Join(filepath.Dir(path), ready.NotesName)) }},
		{"a copy without a note", func(t *testing.T, path string) { write(t, path, "one", 0o555) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t)
			o := Options{place: places(dir)}
			path := filepath.Join(o.place.Cache, p.Want().FileName())
			open(t, p, o).Close()
			if !found(p, o.place) {
				t.Fatal("not ready before")
			}
			tt.plant(t, path)
			if found(p, o.place) {
				t.Error("ready without a hash")
			}
			before := descriptors(t)
			l := open(t, p, o)
			if l.From != FromCache {
				t.Errorf("from %s: %v", l.From, l.Passed)
			}
			runs(t, l, p)
			l.Close()
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, %d before", after, before)
			}
			if !found(p, o.place) {
				t.Error("not ready afterwards")
			}
		})
	}
}

// TestSwapped: while the names of the program and of another file are exchanged again and
// again, what was judged runs, and never the other.
func TestSwapped(t *testing.T) {
	p := program(t, "one")
	dir := folder(t)
	o := Options{place: places(dir)}
	open(t, p, o).Close()
	path := filepath.Join(o.place.Cache, p.Want().FileName())
	other := filepath.Join(dir, "other")
	put(t, other, "two", 0o555)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		}
	})
	for range 30 {
		l, err := Open(t.Context(), p, o)
		if err != nil {
			t.Error(err)
			continue
		}
		runs(t, l, p)
		l.Close()
		if fd, ok := ready.Find(p.Want(), *o.place); ok {
			quick := &Located{File: os.NewFile(uintptr(fd), path)}
			runs(t, quick, p)
			quick.Close()
		}
	}
	cancel()
	group.Wait()
	// And for certain: judged, then exchanged, then run.
	l := open(t, p, o)
	if err := os.WriteFile(path+"-new", []byte("#!/bin/false\n"), 0o555); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"-new", path); err != nil {
		t.Fatal(err)
	}
	runs(t, l, p)
}

// TestHome: root never uses $HOME, and a plain user's must be its own.
func TestHome(t *testing.T) {
	p := program(t, "one")
	t.Run("root with a user's", func(t *testing.T) {
		cache := private(t)
		u := newUser(t, 0, p)
		chown(t, u.home(), plain)
		u.env = []string{"XDG_CACHE_HOME=" + filepath.Join(u.home(), "xdg")}
		if from := u.start(t, p); from != string(FromCache) {
			t.Errorf("from %s", from)
		}
		if got := list(u.home()); len(got) > 0 {
			t.Errorf("in the user's home: %q", got)
		}
		if got := files(t, cache); !slices.Equal(got, settled(p)) {
			t.Errorf("the cache has %q", got)
		}
		if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the cache is %v, %v", info, err)
		}
	})
	t.Run("plain user with another's", func(t *testing.T) {
		u := newUser(t, plain, p)
		chown(t, u.home(), plain+1)
		chmod(t, u.home(), 0o777)
		if from := u.start(t, p); from != string(FromMemory) {
			t.Errorf("from %s", from)
		}
		if got := list(u.home()); len(got) > 0 {
			t.Errorf("in the other's home: %q", got)
		}
	})
	t.Run("plain user without one", func(t *testing.T) {
		u := newUser(t, plain, p)
		u.env = []string{"HOME=" + filepath.Join(u.dir, "bin", "none")}
		if from := u.start(t, p); from != string(FromMemory) {
			t.Errorf("from %s", from)
		}
	})
	t.Run("plain user with its own", func(t *testing.T) {
		u := newUser(t, plain, p)
		for _, want := range []string{string(FromCache), "ready"} {
			if from := u.start(t, p); from != want {
				t.Errorf("from %s, want %s", from, want)
			}
		}
		for path, want := range map[string]os.FileMode{filepath.Dir(u.cache()): 0o700, u.cache(): 0o755} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s is %v, %v", path, info.Mode(), err)
			}
		}
		u.env = []string{"XDG_CACHE_HOME=" + filepath.Join(u.home(), "xdg")}
		u.start(t, p)
		if got := files(t, filepath.Join(u.home(), "xdg", "cubby")); !slices.Equal(got, settled(p)) {
			t.Errorf("the cache has %q", got)
		}
	})
}

// TestLinks: what is beside the program's file counts, by whatever name it was started.
func TestLinks(t *testing.T) {
	p := program(t, "one")
	link := func(t *testing.T, u *user, make func(old, new string) error) {
		t.Helper()
		dir := filepath.Join(u.dir, "elsewhere")
		if err := errors.Join(os.Mkdir(dir, 0o755), make(u.exe, filepath.Join(dir, "cubby"))); err != nil {
			t.Fatal(err)
		}
		u.exe = filepath.Join(dir, "cubby")
	}
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, u *user)
		want    string
	}{
		{"symbolic link", func(t *testing.T, u *user) {
			put(t, filepath.Join(u.dir, "bin", "cubby-engine"), "one", 0o755)
			link(t, u, os.Symlink)
		}, string(FromBeside)},
		{"symbolic link, with another one beside it", func(t *testing.T, u *user) {
			put(t, filepath.Join(u.dir, "lib", "cubby", "cubby-engine"), "one", 0o755)
			link(t, u, os.Symlink)
			put(t, filepath.Join(u.dir, "elsewhere", "cubby-engine"), "two", 0o755)
		}, string(FromBeside)},
		{"hard link", func(t *testing.T, u *user) {
			put(t, filepath.Join(u.dir, "bin", "cubby-engine"), "one", 0o755)
			link(t, u, os.Link)
		}, string(FromCache)},
		{"hard link, with its program", func(t *testing.T, u *user) {
			link(t, u, os.Link)
			put(t, filepath.Join(u.dir, "elsewhere", "cubby-engine"), "one", 0o755)
		}, string(FromBeside)},
		{"from PATH", func(t *testing.T, u *user) {
			put(t, filepath.Join(u.dir, "bin", "cubby-engine"), "one", 0o755)
			link(t, u, os.Symlink)
			t.Setenv("PATH", filepath.Dir(u.exe))
			u.exe = "cubby"
		}, string(FromBeside)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUser(t, plain, p)
			tt.prepare(t, u)
			for _, want := range []string{tt.want, "ready"} {
				if from := u.start(t, p); from != want {
					t.Errorf("from %s, want %s", from, want)
				}
			}
		})
	}
}

// TestInUserNamespace: a process in a user namespace of its own, as that of the sandboxes
// is without root, finds what its user has unpacked, and unpacks where its user does.
func TestInUserNamespace(t *testing.T) {
	p := program(t, "one")
	for _, first := range []string{"outside", "inside"} {
		t.Run("unpacked "+first, func(t *testing.T) {
			u := newUser(t, plain, p)
			if first == "outside" {
				u.start(t, p)
			}
			u.env = []string{roleVar + "=inside"}
			if first == "inside" {
				if from := u.start(t, p); from != string(FromCache) {
					t.Errorf("from %s", from)
				}
			}
			if from := u.start(t, p); from != "ready" {
				t.Errorf("from %s", from)
			}
			if got := files(t, u.cache()); !slices.Equal(got, settled(p)) {
				t.Errorf("the cache has %q", got)
			}
		})
	}
}

// inside starts a front in a user namespace.
func inside() error {
	cmd := exec.Command("/proc/self/exe")
	if exe, err := os.Executable(); err == nil {
		cmd = exec.Command(exe)
	}
	cmd.Env = append(os.Environ(), roleVar+"=front")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = namespace.Attr()
	return cmd.Run()
}

// TestOtherVersions: a version is removed by the next one, but not while a process runs it.
func TestOtherVersions(t *testing.T) {
	one, two, three := program(t, "one"), program(t, "two"), program(t, "three")
	u := newUser(t, plain, one)
	cmd := u.command(t.Context())
	cmd.Env = append(cmd.Env, waitVar+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, one.SHA256) {
		t.Fatalf("%q, %v", line, err)
	}
	next := func(p Program, want ...string) {
		t.Helper()
		u.pack = writePack(t, u.dir, p)
		u.start(t, p)
		want = append(settled(p), want...)
		slices.Sort(want)
		if got := files(t, u.cache()); !slices.Equal(got, want) {
			t.Errorf("the cache has %q, want %q", got, want)
		}
	}
	next(two, one.Want().FileName()) // it runs
	next(three, one.Want().FileName())
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	next(two)
}

// TestMemory: a program in memory cannot be changed by anybody.
func TestMemory(t *testing.T) {
	p := program(t, "one")
	l := open(t, p, Options{place: &ready.Place{}})
	if l.From != FromMemory {
		t.Fatalf("from %s", l.From)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if got, err := unix.FcntlInt(l.File.Fd(), unix.F_GET_SEALS, 0); err != nil || got&seals != seals {
		t.Errorf("seals %#x, %v", got, err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", l.File.Fd()), os.O_RDWR, 0)
	if err == nil {
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Error("it was written")
		}
		f.Close()
	}
	runs(t, l, p)
}

// TestDamaged: a packed program that is not what its sum says runs nowhere.
func TestDamaged(t *testing.T) {
	good, other := program(t, "one"), program(t, "another")
	for name, damage := range map[string]func(p *Program){
		"cut":                  func(p *Program) { p.Zstd = p.Zstd[:len(p.Zstd)/2] },
		"empty":                func(p *Program) { p.Zstd = nil },
		"not compressed":       func(p *Program) { p.Zstd = []byte("#!/bin/sh\n") },
		"another":              func(p *Program) { p.Zstd = other.Zstd },
		"longer than it says":  func(p *Program) { p.Size -= 10 },
		"shorter than it says": func(p *Program) { p.Size += 10 },
		"another hash":         func(p *Program) { p.SHA256 = other.SHA256 },
		"a bit": func(p *Program) {
			p.Zstd = bytes.Clone(p.Zstd)
			p.Zstd[len(p.Zstd)/2] ^= 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := good
			damage(&p)
			dir := folder(t)
			o := Options{place: places(dir), RunDir: filepath.Join(dir, "lib")}
			before := descriptors(t)
			l, err := Open(t.Context(), p, o)
			if err == nil {
				t.Fatalf("taken from %s", l.From)
			}
			if got := list(o.place.Cache); !slices.Equal(got, []string{lockName}) {
				t.Errorf("the cache has %q", got)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, %d before", after, before)
			}
		})
	}
}

// TestGivenUp: a start that is given up leaves nothing.
func TestGivenUp(t *testing.T) {
	dir := folder(t)
	o := Options{place: places(dir)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, program(t, "one"), o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := list(o.place.Cache); len(got) > 1 {
		t.Errorf("the cache has %q", got)
	}
}
