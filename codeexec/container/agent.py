"""The resident process of a container: it starts programs and passes their input
and output on. It is process 1, so that nothing inside can end it and everything
that loses its parent comes to it; and it ends with its input, so that the
container ends with the program that made it.

It shares the container and its user with hostile code. It does what it can to
outlive that code, but whoever talks to it must not believe it.

It follows walls.py in one program. Its arguments are the shell's program that
takes its place where it cannot do its work, and what it may tidy up when nothing
runs.

A frame is a length (4 bytes), a kind (1), a program's number (4) and that many
bytes. To the agent: R starts a program (JSON), I is input, C its end, A allows
more output (4 bytes), K kills. From it: H is the greeting, S says that a program
was started, F that it was not, O and E are output, A allows more input, X is the
end. Each direction of each program has a window: so many bytes may be under way.
"""
import errno
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import time

TYPE_CHECKING = False  # True for tools that read this file and do not run it
if TYPE_CHECKING:
    from typing import Any, Dict

    from walls import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, hold_limits, libc, note_limits, seal, tidy

VERSION = 1
WINDOW = 256 << 10
CHUNK = 64 << 10
MAX_FRAME = 1 << 20
HEADER = struct.Struct(">IBI")

# How long a program may take to begin. One that takes longer was stopped on its
# way by a program that stops whatever it finds.
SPAWN_TIME = 10.0
# How long what a program left running may take to end.
SWEEP_TIME = 30.0

programs: "Dict[int, Program]" = {}  # by number
inbox = bytearray()
outbox = bytearray()


def send(kind, number, payload=b""):
    outbox.extend(HEADER.pack(len(payload), ord(kind), number))
    outbox.extend(payload)


def send_json(kind, number, value):
    send(kind, number, json.dumps(value).encode())


def counter(key, *paths):
    """A line `key N` of the first of the control group's files that is there."""
    for path in paths:
        try:
            with open("/sys/fs/cgroup/" + path) as f:
                for line in f:
                    if line.startswith(key + " "):
                        return int(line.split()[1])
        except (OSError, ValueError):
            pass
    return 0


def pressure():
    return (
        counter("oom_kill", "memory.events", "memory/memory.oom_control"),
        counter("max", "pids.events", "pids/pids.events"),
    )


def find(name):
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return ""


class Program:
    def __init__(self, number, spec):
        self.number = number
        self.pid = 0
        self.status: "Any" = None  # of waitpid, once it has ended
        self.quiet = None  # when to give its output up after its end
        self.killed = self.timed_out = False
        self.timeout = spec.get("timeout") or 0
        self.deadline = None
        # Bytes that may still be passed on; None is no bound. What is more is
        # read and dropped, so that the program goes on.
        self.left = spec.get("max_output") or None
        self.dropped = 0
        self.credit = WINDOW
        self.outputs = {}  # descriptor -> kind
        self.input = -1
        self.pending = bytearray()
        self.closing = not spec.get("input")
        self.tty = bool(spec.get("tty"))
        self.before = pressure()
        # Until the program has begun: where its process says why it could not,
        # what it has said, and when to stop waiting for that.
        self.report = -1
        self.said = b""
        self.begin_by = time.monotonic() + SPAWN_TIME
        if not hold_limits():
            sys.stderr.write("a program has lowered the limits of the container's agent\n")
            os._exit(70)
        self.start(spec)

    def start(self, spec):
        argv = [str(a) for a in spec["argv"]]
        env = dict(os.environ)
        env.update({str(k): str(v) for k, v in (spec.get("env") or {}).items()})
        opened = []  # by the child's descriptor, then ours
        report_r = report_w = -1
        try:
            if self.tty:
                master, slave = os.openpty()
                opened += [master, slave]
                size = spec.get("size") or [24, 80]
                fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[0], size[1], 0, 0))
                ends, ours = [slave, slave, slave], [master]
                child_only = [slave]
                self.input = master
                self.outputs = {master: "O"}
            else:
                in_r, in_w = os.pipe()
                opened += [in_r, in_w]
                out_r, out_w = os.pipe()
                opened += [out_r, out_w]
                err_r, err_w = os.pipe()
                opened += [err_r, err_w]
                ends, ours = [in_r, out_w, err_w], [in_w, out_r, err_r]
                child_only = ends
                self.input = in_w
                self.outputs = {out_r: "O", err_r: "E"}
            report_r, report_w = os.pipe()
            pid = os.fork()
        except OSError:
            for fd in opened + [fd for fd in (report_r, report_w) if fd >= 0]:
                os.close(fd)
            raise
        if pid == 0:
            child(ends, report_w, argv, env, spec.get("cwd") or "/", self.tty)
        os.close(report_w)
        for fd in child_only:
            os.close(fd)
        os.set_blocking(report_r, False)
        for fd in ours:
            os.set_blocking(fd, False)
        self.report = report_r
        self.pid = pid

    def hear(self, last):
        """Hears whether the process has become the program: its report then ends
        empty. last says that nothing more is to be waited for."""
        try:
            while len(self.said) < CHUNK:
                part = os.read(self.report, 4096)
                if not part:
                    break
                self.said += part
        except BlockingIOError:
            now = time.monotonic()
            if not last and now < self.begin_by:
                # Another program may have stopped it.
                self.signal(signal.SIGCONT)
                return
            if not last:
                self.said = b"%d %s" % (errno.ETIMEDOUT, b"it does not begin")
        os.close(self.report)
        self.report = -1
        if not self.said:
            send("S", self.number)
            if self.timeout and self.status is None:
                self.deadline = time.monotonic() + self.timeout
            self.feed()
            return
        self.signal(signal.SIGKILL)
        code, _, text = self.said.decode("utf-8", "replace").partition(" ")
        if self.input >= 0 and self.input not in self.outputs:
            os.close(self.input)
        for fd in self.outputs:
            os.close(fd)
        del programs[self.number]
        refuse(self.number, int(code) if code.isdigit() else errno.EINVAL, text)

    def signal(self, number):
        if self.status is None:
            try:
                os.kill(self.pid, number)
            except OSError:
                pass

    def feed(self):
        """Writes input that has come."""
        while self.pending and self.input >= 0:
            try:
                n = os.write(self.input, self.pending[:CHUNK])
            except BlockingIOError:
                return
            except OSError:  # it does not read any more
                self.close_input()
                return
            del self.pending[:n]
            send("A", self.number, struct.pack(">I", n))
        if self.closing and not self.pending:
            self.close_input()

    def close_input(self):
        if self.pending:
            send("A", self.number, struct.pack(">I", len(self.pending)))
            self.pending.clear()
        if self.input < 0:
            return
        if self.tty:
            try:
                os.write(self.input, b"\x04")
            except OSError:
                pass
        else:
            os.close(self.input)
        self.input = -1

    def drain(self, fd):
        """Passes output on. It tells whether there may be more."""
        dropping = self.left == 0
        try:
            data = os.read(fd, CHUNK if dropping else min(CHUNK, self.credit))
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if not data:
            self.close_output(fd)
            return False
        more = len(data) == CHUNK
        if self.left is not None:
            keep = data[: self.left]
            self.dropped += len(data) - len(keep)
            self.left -= len(keep)
            data = keep
        if data:
            self.credit -= len(data)
            send(self.outputs[fd], self.number, data)
        return more

    def close_output(self, fd):
        del self.outputs[fd]
        if self.input == fd:
            self.input = -1
        os.close(fd)

    def kill(self):
        self.killed = True
        if self.status is None:
            for target in (-self.pid, self.pid):
                try:
                    os.kill(target, signal.SIGKILL)
                except OSError:
                    pass
        else:
            for fd in list(self.outputs):
                self.close_output(fd)

    def done(self):
        if self.input >= 0 and not (self.tty and self.outputs):
            os.close(self.input)
        self.input = -1
        oom, pids = pressure()
        code = os.waitstatus_to_exitcode(self.status) if hasattr(os, "waitstatus_to_exitcode") else exit_code(self.status)
        send_json(
            "X",
            self.number,
            {
                "code": code,
                "timed_out": self.timed_out,
                "dropped": self.dropped,
                "oom": oom > self.before[0],
                "pids": pids > self.before[1],
            },
        )
        del programs[self.number]


def refuse(number, code, text):
    send_json("F", number, {"errno": errno.errorcode.get(code, ""), "text": text})


def exit_code(status):
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def child(ends, report, argv, env, cwd, tty):
    """Becomes the program, or reports why not."""
    code, text = errno.EINVAL, ""
    try:
        os.setsid()
        if tty:
            fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)
        keep = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in ends]
        report = fcntl.fcntl(report, fcntl.F_DUPFD, 10)
        for to, fd in enumerate(keep):
            os.dup2(fd, to)
        # The report is descriptor 3, the others are gone before the process may
        # be looked into.
        os.dup2(report, 3, inheritable=False)
        report = 3
        os.closerange(4, max(os.sysconf("SC_OPEN_MAX"), 256))
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        # What loses its parent comes to the program, not to process 1: so it is
        # known to whom it belongs.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            if os.getpriority(os.PRIO_PROCESS, 0) < 5:
                os.setpriority(os.PRIO_PROCESS, 0, 5)
            with open("/proc/self/oom_score_adj", "w") as f:
                f.write("1000")
        except OSError:
            pass
        text = cwd
        os.chdir(cwd)
        text = argv[0]
        os.execvpe(argv[0], argv, env)
    except OSError as e:
        code = e.errno or errno.EINVAL
    except BaseException as e:
        text = str(e)
    try:
        os.write(report, ("%d %s" % (code, text[:1000])).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def strays():
    """Processes that no running program has started, directly or not, and whether
    some could not be told: their parent ended while this looked."""
    parents, alive, unsure = {}, [], False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
        # One whose first thread has ended looks like a zombie and may run on.
        if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
            alive.append(int(name))
    me = os.getpid()
    mine = {p.pid for p in programs.values() if p.status is None}
    found = []
    for pid in alive:
        at, steps = pid, 0
        while at > 1 and at not in mine and steps < 100000:
            at, steps = parents.get(at, -1), steps + 1
        if at == -1 or at > 1 and at not in mine:
            unsure = True
        elif at == 1 and pid not in (1, me):  # at 0: somebody's docker exec
            found.append(pid)
    return found, unsure


def sweep():
    """Ends the strays. They are stopped first: what is stopped does not fork."""
    hold_limits()
    begin = first = time.monotonic()
    stopped = set()
    while True:
        found, unsure = strays()
        # A program that runs may come and go for ever; strays are soon found.
        if not found and (not unsure or time.monotonic() - begin > 0.2):
            break
        fresh = [pid for pid in found if pid not in stopped]
        late = time.monotonic() - begin > 2
        for pid in fresh if fresh and not late else found:
            try:
                os.kill(pid, signal.SIGSTOP if fresh and not late else signal.SIGKILL)
            except OSError:
                pass
        stopped.update(fresh)
        reap()
        if late and found:
            # They fork faster than they are found. This ends all programs, which
            # no process escapes.
            os.kill(-1, signal.SIGKILL)
            begin = time.monotonic()
        if time.monotonic() - first > SWEEP_TIME:
            sys.stderr.write("processes in the container do not end\n")
            os._exit(71)
        if not fresh:
            time.sleep(0.002)
    reap()


def reap():
    """Collects what has ended; the programs among it are noted."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for p in programs.values():
            if p.pid == pid and p.status is None:
                p.status = status
                p.deadline = None


def handle(kind, number, payload):
    if kind == "R":
        if number in programs:
            raise ValueError("a number twice")
        try:
            programs[number] = Program(number, json.loads(payload.decode()))
        except OSError as e:
            refuse(number, e.errno, e.strerror)
        except (KeyError, TypeError, ValueError) as e:
            refuse(number, errno.EINVAL, str(e))
        return
    p = programs.get(number)
    if p is None:
        return  # it has just ended
    if kind == "I":
        p.pending.extend(payload)
        if p.input < 0:
            p.close_input()
        p.feed()
    elif kind == "C":
        p.closing = True
        p.feed()
    elif kind == "A":
        p.credit += struct.unpack(">I", payload)[0]
        if p.quiet is not None:
            p.quiet = time.monotonic() + 2
    elif kind == "K":
        p.kill()


def receive():
    """Reads what the host sends; its end is the end of everything."""
    try:
        data = os.read(0, 1 << 20)
    except BlockingIOError:
        return
    if not data:
        os._exit(0)
    inbox.extend(data)
    while len(inbox) >= HEADER.size:
        size, kind, number = HEADER.unpack_from(inbox)
        if size > MAX_FRAME:
            raise ValueError("a frame of %d bytes" % size)
        if len(inbox) < HEADER.size + size:
            return
        payload = bytes(inbox[HEADER.size : HEADER.size + size])
        del inbox[: HEADER.size + size]
        handle(chr(kind), number, payload)


def flush():
    while outbox:
        try:
            n = os.write(1, outbox[:CHUNK])
        except BlockingIOError:
            return
        del outbox[:n]


def main():
    if not seal():
        # Its programs could take it over: it is better to have none.
        os.execvp("sh", ["sh", "-c", sys.argv[1]])
    note_limits()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    wake_r, wake_w = os.pipe()
    for fd in (0, 1, wake_r, wake_w):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *args: None)
    home = os.environ.get("HOME")
    if home:
        try:
            os.makedirs(home, exist_ok=True)
        except OSError:
            pass
    send_json(
        "H",
        0,
        {
            "version": VERSION,
            "python": sys.version.split()[0],
            "tools": {name: find(name) for name in ("python3", "bash", "sh", "node", "tar")},
            "uid": os.getuid(),
        },
    )
    while True:
        flush()
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(wake_r, select.POLLIN)
        if outbox:
            poll.register(1, select.POLLOUT)
        readers, writers = {}, {}
        now = time.monotonic()
        wait = 3600.0
        room = len(outbox) < MAX_FRAME  # else nothing is read: memory is bounded
        for p in programs.values():
            if p.report >= 0:
                poll.register(p.report, select.POLLIN)
                wait = min(wait, 0.02)
                continue
            for fd in p.outputs:
                if (p.credit > 0 or p.left == 0) and room:
                    readers[fd] = p
            if p.pending and p.input >= 0:
                writers[p.input] = p
            if p.deadline is not None:
                wait = min(wait, max(p.deadline - now, 0))
            if p.quiet is not None and p.credit > 0 and room:
                wait = min(wait, max(p.quiet - now, 0))
        for fd in set(readers) | set(writers):
            poll.register(fd, (select.POLLIN if fd in readers else 0) | (select.POLLOUT if fd in writers else 0))
        events = poll.poll(wait * 1000 + 1)
        for fd, event in events:
            if fd == 0:
                receive()
            elif fd == wake_r:
                try:
                    os.read(wake_r, 4096)
                except BlockingIOError:
                    pass
        reap()
        for p in list(programs.values()):
            if p.report >= 0:
                p.hear(last=p.status is not None)
        now = time.monotonic()
        for p in list(programs.values()):
            if p.deadline is not None and now >= p.deadline:
                p.timed_out = True
                p.deadline = None
                p.kill()
        if any(p.status is not None and p.quiet is None for p in programs.values()):
            sweep()
            if all(p.status is not None for p in programs.values()):
                tidy()
            now = time.monotonic()
        ready = dict(events)
        for p in list(programs.values()):
            # What was printed before an error is read before it, as far as can be
            # known: stdout comes first.
            for fd in sorted(p.outputs, key=lambda fd: p.outputs[fd] == "E"):
                if fd in ready and readers.get(fd) is p and (p.credit > 0 or p.left == 0):
                    if p.quiet is not None:
                        p.quiet = now + 2
                    if p.drain(fd):
                        break
            fd = p.input
            if fd >= 0 and writers.get(fd) is p and ready.get(fd, 0) & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                p.feed()
        for p in list(programs.values()):
            if p.status is None:
                continue
            if p.quiet is None:
                p.quiet = now + 2
                if p.killed:
                    p.credit = max(p.credit, CHUNK)
            # Its output has ended, or is held open by a process of another
            # program to which it was passed.
            if not p.outputs or (now > p.quiet and p.credit > 0 and room):
                for fd in list(p.outputs):
                    p.close_output(fd)
                p.done()


main()
