package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// checkpointed starts a machine of spec, runs code in it and returns it with its powers.
func (s Suite) checkpointed(t *testing.T, spec engine.Spec, code string) (*machine, engine.Checkpointer, engine.Pauser, engine.Restorer) {
	t.Helper()
	restorer := can[engine.Restorer](t, s.Engine)
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, m0)
	m.must(t, "", code)
	return m, can[engine.Checkpointer](t, m0), can[engine.Pauser](t, m0), restorer
}

// restore boots a copy of spec.
func restore(t *testing.T, e engine.Restorer, spec engine.Spec, id, from string) *machine {
	t.Helper()
	spec.ID += id
	m, err := e.Restore(t.Context(), spec, from, engine.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return newMachine(t, m)
}

// answers reports whether a machine does so within a moment.
func (m *machine) answers(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := m.transport[protocol.EnvdPort].RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

// testCheckpointFrozen: a machine that is frozen is written as it is and stays
// frozen, what is restored of it runs, and so does the machine once it is thawed.
func (s Suite) testCheckpointFrozen(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	m, checkpointer, pauser, restorer := s.checkpointed(t, spec, `
import threading, time
x, slept = 41, []
def sleep(s):
    a = time.monotonic(), time.time()
    time.sleep(s)
    slept.append((time.monotonic() - a[0], time.time() - a[1]))
threads = [threading.Thread(target=sleep, args=(s,)) for s in (3, 0.5)]
for thread in threads: thread.start()`)
	boot := m.must(t, "", bootID)
	if err := pauser.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	var images []string
	for range 2 {
		images = append(images, t.TempDir())
		if err := checkpointer.Checkpoint(t.Context(), images[len(images)-1], engine.CheckpointOptions{}); err != nil {
			t.Fatal(err)
		}
		if m.answers(t) {
			t.Error("it was frozen, and runs since the checkpoint")
		}
	}
	if err := pauser.Pause(t.Context()); err == nil {
		t.Error("a frozen machine was frozen once more")
	}
	for i, image := range images {
		r := restore(t, restorer, spec, fmt.Sprint("r", i), image)
		if got := r.must(t, "", "x += 1; print(x)"); got != "42" {
			t.Errorf("restored: %s", got)
		}
		if got := r.must(t, "", bootID); got != boot {
			t.Errorf("its boot_id is %s, and was %s", got, boot)
		}
		now := r.must(t, "", "import time; print(time.time())")
		if at, err := strconv.ParseFloat(now, 64); err != nil || time.Since(time.UnixMicro(int64(at*1e6))).Abs() > 20*time.Second {
			t.Errorf("its clock says %s (%v)", now, err)
		}
		// They woke no sooner than they were to, and did wake.
		if got := r.must(t, "", `
for thread in threads: thread.join(60)
print(len(slept), all(m > least - 0.1 and w > least - 0.1 for (m, w), least in zip(sorted(slept), (0.5, 3))))`); got != "2 True" {
			t.Errorf("its sleepers: %s, %s", got, r.must(t, "", "print(slept)"))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := pauser.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.must(t, "", "x += 1; print(x)"); got != "42" {
		t.Errorf("thawed: %s", got)
	}
	if got := m.must(t, "", "for thread in threads: thread.join(60)\nprint(len(slept))"); got != "2" {
		t.Errorf("thawed: its sleepers: %s", got)
	}
	for _, call := range []func(context.Context) error{pauser.Pause, pauser.Resume, pauser.Pause} {
		if err := call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Errorf("closing what is frozen: %v", err)
	}
	if err := checkpointer.Checkpoint(t.Context(), t.TempDir(), engine.CheckpointOptions{}); !errors.Is(err, engine.ErrEnded) {
		t.Errorf("a checkpoint of what has ended: %v", err)
	}
}

// busyLife makes everything of which a kernel keeps state. What is left of it
// lookAround prints.
const busyLife = `
import ctypes, fcntl, hashlib, mmap, os, select, signal, socket, subprocess, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def child(f):
    pid = os.fork()
    if pid == 0:
        try: f()
        finally: os._exit(9)
    return pid
def wait_for(f):
    for _ in range(3000):
        if f(): return
        time.sleep(0.01)
    raise TimeoutError(f)
def state(pid): return open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]
# processes
ask, answer = os.pipe(), os.pipe()
def echo():
    while data := os.read(ask[0], 100): os.write(answer[1], data.upper())
worker = child(echo)
stopped = child(lambda: (os.setpgid(0, 0), signal.pause())); wait_for(lambda: os.getpgid(stopped) == stopped); os.kill(stopped, signal.SIGSTOP); wait_for(lambda: state(stopped) == 'T')
zombie = child(lambda: os._exit(7)); wait_for(lambda: state(zombie) == 'Z')
orphan = subprocess.run(['sh', '-c', 'sleep 1000 >/dev/null 2>&1 & echo $!'], capture_output=True, text=True).stdout.strip()
# timers
rang = []
timer = threading.Timer(1.5, lambda: rang.append(time.monotonic())); timer.start()
deadline = time.monotonic() + 1.5
alarm = child(lambda: (signal.signal(signal.SIGALRM, lambda *_: os._exit(14)), signal.setitimer(signal.ITIMER_REAL, 1.5), time.sleep(1000)))
# a connection in the middle of a transfer
listener = socket.create_server(('127.0.0.1', 0))
payload = hashlib.sha256(b'payload').digest() * (1 << 17)
def serve():
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=lambda c: (c.sendall(payload), c.close()), args=(conn,), daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(listener.getsockname())
received = client.recv(100_000)
# sockets, pipes, descriptors under way
left, right = socket.socketpair()
hidden = open('/tmp/hidden', 'w+'); hidden.write('passed on'); hidden.flush()
socket.send_fds(left, [b'queued'], [hidden.fileno()])
pipe = os.pipe(); os.write(pipe[1], b'in the pipe')
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('127.0.0.1', 0)); udp.sendto(b'datagram', udp.getsockname())
# files
gone = open('/home/user/gone', 'w+'); gone.write('deleted, but open'); gone.flush(); os.remove('/home/user/gone')
mapped = open('/home/user/mapped', 'w+b'); mapped.truncate(8192)
dirty = mmap.mmap(mapped.fileno(), 8192); dirty[5000:5005] = b'dirty'
shared = open('/dev/shm/shared', 'w+b'); shared.truncate(4096); memory = mmap.mmap(shared.fileno(), 4096); memory[:6] = b'shared'
growing = open('/home/user/growing', 'ab', buffering=0)
for i in range(1000): growing.write(b'%06d' % i)
maps = open('/proc/self/status'); maps.readline()
# watches
watch = libc.inotify_init1(os.O_NONBLOCK); os.mkdir('/tmp/watched'); libc.inotify_add_watch(watch, b'/tmp/watched', 0x100)
open('/tmp/watched/before', 'w')
event = os.eventfd(3); poll = select.epoll(); poll.register(event, select.EPOLLIN); poll.register(pipe[0], select.EPOLLIN)
# locks
locked = open('/tmp/locked', 'w'); fcntl.flock(locked, fcntl.LOCK_EX)
ranged = open('/tmp/ranged', 'w+'); fcntl.lockf(ranged, fcntl.LOCK_EX, 10, 20)`

const lookAround = `
results = {}
os.write(ask[1], b'still there?'); results['worker'] = os.read(answer[0], 100)
results['stopped'] = state(stopped), state(zombie), os.waitpid(zombie, 0)[1] >> 8
os.kill(stopped, signal.SIGCONT); wait_for(lambda: state(stopped) == 'S'); os.kill(stopped, 9); results['killed'] = os.waitpid(stopped, 0)[1]
results['orphan'] = open(f'/proc/{orphan}/cmdline').read()
timer.join(60); results['timer'] = len(rang) == 1 and rang[0] >= deadline - 0.1
results['alarm'] = os.waitpid(alarm, 0)[1] >> 8
while data := client.recv(1 << 20): received += data
results['transfer'] = received == payload
again = socket.create_connection(listener.getsockname()); results['listener'] = len(again.recv(10))
data, fds, _, _ = socket.recv_fds(right, 100, 1); os.lseek(fds[0], 0, 0); results['passed'] = data, os.read(fds[0], 100)
results['poll'] = sorted(e for _, e in poll.poll(10)), os.eventfd_read(event), os.read(pipe[0], 100)
results['udp'] = udp.recv(100)
gone.seek(0); results['gone'] = gone.read(), os.path.exists('/home/user/gone')
results['mapped'] = dirty[5000:5005], open('/home/user/mapped', 'rb').read()[5000:5005], memory[:6], open('/dev/shm/shared', 'rb').read(6)
growing.write(b'end'); text = open('/home/user/growing').read(); results['growing'] = len(text), text[-9:]
results['status'] = maps.read().startswith('Umask') or maps.tell() > 0
open('/tmp/watched/after', 'w'); names = os.read(watch, 4096); results['inotify'] = b'before' in names, b'after' in names
def blocked():
    other, held = open('/tmp/locked', 'w'), 0
    try: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: held += 1
    other = open('/tmp/ranged', 'w')
    try: fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 25)
    except BlockingIOError: held += 2
    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
    os._exit(held)
results['locks'] = os.waitpid(child(blocked), 0)[1] >> 8
for name, value in results.items(): print(name, value)`

const livesOn = `worker b'STILL THERE?'
stopped ('T', 'Z', 7)
killed 9
orphan sleep` + "\x00" + `1000` + "\x00" + `
timer True
alarm 14
transfer True
listener 10
passed (b'queued', b'passed on')
poll ([1, 1], 3, b'in the pipe')
udp b'datagram'
gone ('deleted, but open', False)
mapped (b'dirty', b'dirty', b'shared', b'shared')
growing (6003, '000999end')
status True
inotify (True, True)
locks 3`

// testCheckpointLife: what a kernel keeps for programs goes on in a machine that was
// written, and in copies of it that are restored at the same time.
func (s Suite) testCheckpointLife(t *testing.T) {
	spec := s.spec(t, engine.Limits{Memory: 512 << 20, CPUs: 2, Disk: 64 << 20})
	m, _, _, restorer := s.checkpointed(t, spec, busyLife)
	image := checkpointOf(t, m.Machine, engine.CheckpointOptions{})
	machines := make([]*machine, 3)
	var wg sync.WaitGroup
	for i := range machines {
		spec := spec
		spec.ID += fmt.Sprint("r", i)
		wg.Go(func() {
			r, err := restorer.Restore(t.Context(), spec, image, engine.RestoreOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			machines[i] = &machine{Machine: r}
		})
	}
	wg.Wait()
	for i, r := range append(machines, m) {
		if r == nil {
			continue
		}
		if r != m {
			r = newMachine(t, r.Machine)
		}
		if got := r.must(t, "", lookAround); got != livesOn {
			t.Errorf("machine %d:\n%s", i, got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testCheckpointAnyMoment writes and restores one machine after the other, of which
// each is the copy of the one before it, at random moments of a program's life.
func (s Suite) testCheckpointAnyMoment(t *testing.T) {
	moments := 20
	if testing.Short() {
		moments = 4
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	spec := s.spec(t, engine.Limits{})
	m, _, _, restorer := s.checkpointed(t, spec, `
import subprocess, sys
open('/home/user/busy.py', 'w').write('''
import hashlib, os
chain, step = "", 0
while not os.path.exists("/tmp/stop"):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        digest = hashlib.sha256(f"{chain}{step}".encode()).hexdigest()
        with open("/home/user/step.new", "w") as f: f.write(digest * 500)
        os.rename("/home/user/step.new", "/home/user/step")
        os.write(w, digest.encode())
        os._exit(0)
    os.close(w)
    chain = os.read(r, 100).decode(); os.close(r)
    os.waitpid(pid, 0)
    if open("/home/user/step").read() != chain * 500: raise SystemExit(f"step {step} was not written")
    step += 1
print(step, chain)
''')
busy = subprocess.Popen([sys.executable, '/home/user/busy.py'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)`)
	for i := range moments {
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		if i%2 == 0 {
			if err := can[engine.Pauser](t, m.Machine).Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		image := checkpointOf(t, m.Machine, engine.CheckpointOptions{})
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		m = restore(t, restorer, spec, fmt.Sprint("m", i), image)
	}
	said := strings.Fields(m.must(t, "", "open('/tmp/stop', 'w'); print(busy.communicate(timeout=60)[0], busy.returncode)"))
	steps, chain := 0, ""
	if len(said) == 3 && said[2] == "0" {
		steps, _ = strconv.Atoi(said[0])
	}
	for i := range steps {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s%d", chain, i))
		chain = hex.EncodeToString(sum[:])
	}
	if steps < moments || chain != said[1] {
		t.Errorf("the program says %q", said)
	}
	t.Logf("%d steps", steps)
}
