def _cubby_environment(marker, packages, programs, node):
    """Print what there is: as one line of JSON after the marker."""
    import importlib.metadata as metadata
    import json
    import platform
    import shutil
    import subprocess

    process = None
    path = node and (shutil.which("node") or shutil.which("nodejs"))
    if path:
        process = subprocess.Popen([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = {}
    for name in packages:
        try:
            found[name] = str(metadata.version(name))
        except Exception:  # not there, or broken: it cannot be relied upon
            pass
    answer = {
        "python": platform.python_version(),
        "packages": found,
        "programs": [name for name in programs if shutil.which(name)],
    }
    if process:
        try:
            answer["node"] = process.communicate(timeout=5)[0].decode().strip()
        except Exception:
            process.kill()
            process.communicate()
    print(marker + json.dumps(answer))
