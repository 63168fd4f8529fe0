# Makes the calls of a test: starts the testee, watches the time of each call, and
# passes on its answers. Runs where code is run, beside it and not with it.
def _cubby_tests(encoded):
    import base64, json, os, queue, signal, subprocess, sys, threading, time

    job = json.loads(base64.b64decode(encoded))
    mark, cases = job["mark"], job["cases"]
    own = ("driver" + mark).encode()  # of the testee's lines
    if job["language"] == "python":
        command = [sys.executable or "python3", "-c", job["testee"]]
    else:
        command = ["node", "-e", job["testee"]]

    def tell(line):
        print("\n" + mark + json.dumps(line), flush=True)

    def read(pipe, lines):
        # Lines that are no answer are what the code prints: dropped, whatever their length.
        whole = b""
        while True:
            piece = pipe.readline(1 << 16)
            if not piece:
                break
            if len(whole) < 1 << 23 and (whole or piece.startswith(own)):
                whole += piece
            if piece.endswith(b"\n"):
                if whole:
                    lines.put(whole)
                whole = b""
        lines.put(None)

    def kill(p):
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except (AttributeError, OSError):
            p.kill()
        p.wait()

    def run(start):
        """Makes calls from start on; returns the next to make, None at the end."""
        p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        lines: queue.Queue = queue.Queue()
        reader = threading.Thread(target=read, args=(p.stdout, lines), daemon=True)
        reader.start()
        assert p.stdin and p.stdout
        i, answered = start, False
        deadline = time.monotonic() + job["setup_seconds"]
        ready = False
        try:
            try:
                p.stdin.write(json.dumps({**job, "own": own.decode(), "start": start}).encode())
                p.stdin.close()
            except OSError:
                pass  # it ended: the answer is below
            while True:
                try:
                    raw = lines.get(timeout=max(0, deadline - time.monotonic()))
                except queue.Empty:
                    if not ready:
                        late = "the code did not end within %g seconds" % job["setup_seconds"]
                        tell({"setup_error": {"type": "TimeoutError", "message": late, "line": 0}})
                        return None
                    tell({"i": i, "timeout": True, "seconds": cases[i]["seconds"]})
                    return i + 1
                if raw is None:
                    if not ready:
                        tell({"setup_error": {"type": "SystemExit", "message": "the code ended its process", "line": 0}})
                        return None
                    tell({"i": i, "died": True})
                    return i + 1
                try:
                    line = json.loads(raw[len(own):])
                except ValueError:
                    continue
                if "setup_error" in line:
                    tell(line)
                    return None
                if "literal" in line or "no_literal" in line:
                    if start == 0:
                        tell(line)
                    continue
                if "ready" in line:
                    ready = True
                elif line.get("i") != i:
                    continue
                elif "end" not in line:
                    if not answered:
                        tell(line)
                    answered = True
                    continue
                else:
                    if not answered:
                        tell({"i": i, "died": True})
                    i, answered = i + 1, False
                    if i >= len(cases):
                        return None
                deadline = time.monotonic() + cases[i]["seconds"]
        finally:
            kill(p)
            reader.join(0.2)
            if not reader.is_alive():
                p.stdout.close()  # else something that left the group still has it

    start = 0
    while start is not None and start < len(cases):
        start = run(start)
