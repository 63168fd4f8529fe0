package enginetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// writeFiles makes one of each kind of file below "/", and describeFiles prints what
// survives of them.
const writeFiles = `
import os, socket, stat, subprocess
def sudo(*args): subprocess.run(['sudo', *args], check=True)
sudo('sh', '-c', 'mkdir -p /srv/kept && chown user /srv/kept')
os.chdir('/srv/kept')
open('plain', 'w').write('plain')
os.makedirs('deep/er/est'); open('deep/er/est/file', 'w').write('deep')
os.link('plain', 'deep/hard link')
os.symlink('plain', 'soft'); os.symlink('/no/such/' + 'long/' * 60, 'dangling')
os.mkfifo('fifo', 0o640)
os.mkdir(b'\xff not utf-8 \x01\n'); open(b'\xff not utf-8 \x01\n/' + b'n' * 200, 'w').write('odd')
open('mode', 'w'); os.chmod('mode', 0o6751)
os.utime('plain', (1, 1234567890))
open('attribute', 'w'); os.setxattr('attribute', 'user.colour', b'green')
with open('sparse', 'wb') as f: f.seek(12 << 20); f.write(b'end')
open('empty', 'w')
with open('big', 'wb') as f:
    for i in range(3000): f.write(b'%06d' % i * 200)
s = socket.socket(socket.AF_UNIX); s.bind('socket')
sudo('sh', '-c', 'echo owned > owned; chown 1234:5678 owned; chmod 600 owned; mkdir -m 1777 sticky; chown 7 sticky')
sudo('rm', '/etc/hosts')
sudo('sh', '-c', 'rm -r /usr/share/zoneinfo 2>/dev/null; mkdir -p /usr/share/zoneinfo; echo new > /usr/share/zoneinfo/new')
sudo('sh', '-c', 'echo more >> /etc/passwd')
open('gone', 'w'); kept = open('gone'); os.remove('gone')
open('/tmp/kept', 'w').write('in /tmp')
open('/home/user/roots', 'w'); sudo('chown', '0:7', '/home/user/roots')
open('/dev/shm/lost', 'w').write('memory')
x = 42`

const describeFiles = `
import hashlib, os, stat, subprocess
os.chdir('/srv/kept')
def sudo(*args): return subprocess.run(['sudo', *args], check=True, capture_output=True, text=True).stdout.strip()
for where, dirs, files in sorted(os.walk(b'.')):
    dirs.sort()
    for name in sorted(dirs + files):
        path = os.path.join(where, name); st = os.lstat(path)
        if name.startswith(b'.') or stat.S_ISSOCK(st.st_mode): continue
        if stat.S_ISLNK(st.st_mode): more = os.readlink(path)
        elif stat.S_ISREG(st.st_mode) and os.access(path, os.R_OK): more = hashlib.sha256(open(path, 'rb').read()).hexdigest()[:12]
        else: more = ''
        folder = stat.S_ISDIR(st.st_mode)
        attributes = [] if stat.S_ISLNK(st.st_mode) else os.listxattr(path, follow_symlinks=False)
        print(path, oct(st.st_mode), st.st_uid, st.st_gid, 0 if folder else st.st_nlink, 0 if folder else st.st_size,
            round(st.st_mtime), attributes, more)
print(os.getxattr('attribute', 'user.colour'), os.stat('plain').st_ino == os.stat('deep/hard link').st_ino, os.stat('sparse').st_blocks)
print(os.path.exists('/etc/hosts'), os.listdir('/usr/share/zoneinfo'), open('/etc/passwd').read()[-5:], open('/tmp/kept').read())
print(sudo('cat', 'owned'), os.stat('/home/user').st_uid, os.stat('/home/user/roots').st_uid, os.stat('/home/user/roots').st_gid)`

const bootID = "print(open('/proc/sys/kernel/random/boot_id').read().strip())"

// testFilesOnly: from either kind of checkpoint a machine boots anew with the files
// that were written, as often as is asked for.
func (s Suite) testFilesOnly(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	spec := s.spec(t, engine.Limits{Disk: 64 << 20})
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	m.must(t, "", writeFiles)
	want, boot := m.must(t, "", describeFiles), m.must(t, "", bootID)
	memory, files := checkpointOf(t, m0, engine.CheckpointOptions{}), checkpointOf(t, m0, engine.CheckpointOptions{FilesOnly: true})
	alone := checkpointOf(t, m0, engine.CheckpointOptions{MemoryOnly: true})
	if err := restorer.Check(alone, engine.RestoreOptions{}); err != nil {
		t.Errorf("memory alone: %v", err)
	}
	if err := restorer.Check(alone, engine.RestoreOptions{FilesOnly: true}); !errors.Is(err, engine.ErrNotSupported) {
		t.Errorf("files of a checkpoint of memory alone: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	if err := restorer.Check(files, engine.RestoreOptions{}); !errors.Is(err, engine.ErrFilesOnly) {
		t.Errorf("memory of a checkpoint of files: %v", err)
	}
	r0, err := restorer.Restore(t.Context(), spec, files, engine.RestoreOptions{})
	if err == nil {
		newMachine(t, r0)
	}
	if !errors.Is(err, engine.ErrFilesOnly) {
		t.Errorf("restored the memory of a checkpoint of files: %v", err)
	}
	boots := map[string]bool{boot: true}
	for i := range 3 {
		from := []string{files, memory, ""}[i]
		if from == "" {
			from = files // of what the last one wrote
		}
		spec.ID = fmt.Sprintf("%sf%d", spec.ID, i)
		if err := restorer.Check(from, engine.RestoreOptions{FilesOnly: true}); err != nil {
			t.Fatal(err)
		}
		r0, err := restorer.Restore(t.Context(), spec, from, engine.RestoreOptions{FilesOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		r := newMachine(t, r0)
		if got := r.must(t, "", describeFiles); got != want {
			t.Errorf("%d: it had\n%s\nand has\n%s", i, want, got)
		}
		if got := r.must(t, "", "import os; print('x' in globals(), os.path.exists('/dev/shm/lost'))"); got != "False False" {
			t.Errorf("%d: of the memory there is left: %s", i, got)
		}
		id := r.must(t, "", bootID)
		if boots[id] {
			t.Errorf("%d: it has the boot_id of another boot", i)
		}
		boots[id] = true
		files = checkpointOf(t, r0, engine.CheckpointOptions{FilesOnly: true})
		again := checkpointOf(t, r0, engine.CheckpointOptions{})
		r.diskIsFull(t, 64<<20)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		// Its memory is restored as any other's.
		spec.ID += "m"
		if r0, err = restorer.Restore(t.Context(), spec, again, engine.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		r = newMachine(t, r0)
		if got := r.must(t, "", describeFiles); got != want {
			t.Errorf("%d: it had, with its memory,\n%s\nand has\n%s", i, want, got)
		}
		if got := r.must(t, "", bootID); got != id {
			t.Errorf("%d: the boot_id %s is %s after a restore of its memory", i, id, got)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}

	// They do not fit.
	spec.ID, spec.Limits.Disk = spec.ID+"x", 1<<20
	r0, err = restorer.Restore(t.Context(), spec, files, engine.RestoreOptions{FilesOnly: true})
	if err == nil {
		newMachine(t, r0)
		t.Error("what was written is more than the limit, and was restored")
	}
}

// checkpointOf writes a machine into a new folder.
func checkpointOf(t *testing.T, m engine.Machine, opts engine.CheckpointOptions) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := can[engine.Checkpointer](t, m).Checkpoint(t.Context(), dir, opts); err != nil {
		t.Fatal(err)
	}
	return dir
}
