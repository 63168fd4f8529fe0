"""What the agent of a container holds its programs to, beside what Docker does. It
is the first part of the agent's program; agent.py is the rest.
"""
import errno
import os
import struct
import sys

try:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
except Exception:
    libc = None  # type: ignore[assignment]
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 4, 22, 36

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]
limits: dict = {}  # resource -> its soft and hard limit as the container has them
processors = None  # that programs may run on


# What each machine calls a processor: by AUDIT_ARCH, the numbers of socket,
# socketpair and socketcall (-1: there is none).
CALLS = {
    0xC000003E: (41, 53, -1),  # x86_64
    0x40000003: (359, 360, 102),  # i386
    0xC00000B7: (198, 199, -1),  # aarch64
    0x40000028: (281, 288, -1),  # arm
    0xC00000F3: (198, 199, -1),  # riscv64
    0xC0000015: (326, 333, 102),  # ppc64le
    0x80000016: (359, 360, 102),  # s390x
}
IO_URING_SETUP = 425
FAMILIES = (1, 2, 10)  # Unix, IPv4, IPv6
NETLINK, NETLINK_ROUTE = 16, 0  # which names the interfaces


def socket_filter():
    """A seccomp filter that refuses sockets of other families: some, such as
    AF_VSOCK, lead out of the container, and Docker's own filter forbids that only
    since version 23. io_uring would make sockets past every filter."""
    LOAD, AND, JUMP, RETURN = 0x20, 0x54, 0x15, 0x06
    ALLOW, REFUSE = 0x7FFF0000, 0x00050000
    MISSING, NO_FAMILY = REFUSE | errno.ENOSYS, REFUSE | errno.EAFNOSUPPORT
    FAMILY, PROTOCOL = (20, 36) if sys.byteorder == "big" else (16, 32)  # lower halves
    code = [(LOAD, 0, 0, 4)]  # the architecture
    for arch, (socket, socketpair, socketcall) in CALLS.items():
        part = [(LOAD, 0, 0, 0)]  # the call's number
        if arch == 0xC000003E:
            part.append((AND, 0, 0, 0xBFFFFFFF))  # x32 has the same
        part += [(JUMP, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, MISSING)]
        if socketcall >= 0:  # its arguments cannot be seen
            part += [(JUMP, 0, 1, socketcall), (RETURN, 0, 0, NO_FAMILY)]
        part += [(JUMP, 2, 0, socket), (JUMP, 1, 0, socketpair), (RETURN, 0, 0, ALLOW)]
        part.append((LOAD, 0, 0, FAMILY))
        for family in FAMILIES:
            part += [(JUMP, 0, 1, family), (RETURN, 0, 0, ALLOW)]
        part += [(JUMP, 1, 0, NETLINK), (RETURN, 0, 0, NO_FAMILY)]
        part += [(LOAD, 0, 0, PROTOCOL), (JUMP, 0, 1, NETLINK_ROUTE), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NO_FAMILY)]
        code.append((JUMP, 0, len(part), arch))
        code += part
    code.append((RETURN, 0, 0, MISSING))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def seal():
    """Closes what the agent and its programs need not have. It tells whether the
    container can be held to that."""
    if libc is None or libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        return False

    class Program(ctypes.Structure):
        _fields_ = [("size", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    code = socket_filter()
    kept = ctypes.create_string_buffer(code, len(code))
    program = Program(len(code) // 8, ctypes.addressof(kept))
    if libc.prctl(PR_SET_SECCOMP, 2, ctypes.addressof(program), 0, 0) == 0:
        return True
    # Who takes no-new-privileges away opens more than this.
    return ctypes.get_errno() == errno.EACCES


def note_limits():
    global processors
    if resource is not None:
        for name in dir(resource):
            if name.startswith("RLIMIT_"):
                number = getattr(resource, name)
                limits[number] = resource.getrlimit(number)
    if hasattr(os, "sched_getaffinity"):
        processors = os.sched_getaffinity(0)


def hold_limits():
    """Undoes what programs, which are of the same user, did to the agent's limits:
    it needs them, and each program inherits them. It tells whether it could."""
    whole = True
    for number, limit in limits.items():
        now = resource.getrlimit(number)
        if now == limit:
            continue
        try:
            resource.setrlimit(number, limit)
        except (OSError, ValueError):
            whole = False
    try:
        if processors is not None and os.sched_getaffinity(0) != processors:
            os.sched_setaffinity(0, processors)
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except (AttributeError, OSError):
        pass  # programs are slower by that, not fewer
    return whole


def tidy():
    """Removes what outlives processes and takes memory: System V objects, shared
    memory and message queues. It is called when no program runs."""
    may = sys.argv[2:]
    if "ipc" in may:
        removers = (
            ("shm", lambda i: libc.shmctl(i, 0, None)),
            ("msg", lambda i: libc.msgctl(i, 0, None)),
            ("sem", lambda i: libc.semctl(i, 0, 0)),
        )
        for kind, remove in removers:
            try:
                with open("/proc/sysvipc/" + kind) as f:
                    ids = [int(line.split()[1]) for line in f.readlines()[1:]]
            except (OSError, ValueError, IndexError):
                continue  # a kernel without them
            for i in ids:
                remove(i)
    for folder in [arg for arg in may if arg.startswith("/")]:
        empty(folder)


def empty(folder):
    """Removes what is in a folder. What lies deeper is moved up first, so that no
    path grows long, however deep programs have made it."""
    folder = os.fsencode(folder)
    moved = 0
    for _ in range(1 << 14):
        before = moved
        for name in listed(folder):
            path = os.path.join(folder, name)
            if removed(path):
                continue
            for below in listed(path):
                inner = os.path.join(path, below)
                if not removed(inner):
                    moved += 1
                    try:
                        os.rename(inner, os.path.join(folder, b".gone%d" % moved))
                    except OSError:
                        pass  # there is one of that name; the next is tried
            removed(path)
        if moved == before:
            return


def listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def removed(path):
    """Removes a file, or a folder with nothing in it; another it makes accessible."""
    try:
        os.unlink(path)
        return True
    except OSError:
        pass
    try:
        os.chmod(path, 0o700)
        os.rmdir(path)
        return True
    except OSError:
        return False
