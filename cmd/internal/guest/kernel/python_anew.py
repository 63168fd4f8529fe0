"""Generators of random numbers in a copy of a sandbox.

The memory of a copy is its source's, and so are the states of generators: what was
random would be drawn twice. What the interpreter and numpy keep for everybody draws
anew; generators that code made for itself go on as they were.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def draw(wait: bool) -> bool:
    """Draw anew; say if all have. Without wait, none that is in use is waited for."""
    complete = True
    for step in (draw_random, draw_numpy, draw_openssl, draw_uuid, draw_tempfile):
        try:
            complete = step(wait) and complete
        except Exception:
            pass  # it is being imported, and draws then, or code has replaced it
    return complete


def loaded(name: str) -> "Any":
    return sys.modules.get(name)


def draw_random(wait: bool) -> bool:
    if loaded("random"):
        loaded("random")._inst.seed()
    return True


def draw_numpy(wait: bool) -> bool:
    module = loaded("numpy.random.mtrand")
    if not module:
        return True
    bits = module._rand._bit_generator
    # Code that this interrupts may hold the lock.
    if not bits.lock.acquire(wait):
        return False
    bits.lock.release()
    try:
        module._rand.seed()
    except TypeError:  # not the generator that it came with
        bits.state = type(bits)().state
    return True


def draw_openssl(wait: bool) -> bool:
    if loaded("_ssl"):
        loaded("_ssl").RAND_add(os.urandom(48), 48.0)
    return True


def draw_uuid(wait: bool) -> bool:
    module = loaded("uuid")
    if module:
        # The C library's has a node and a sequence that nothing can change.
        module._generate_time_safe = None
        module._node = int.from_bytes(os.urandom(6), "big") | 1 << 40  # of no network card
    return True


def draw_tempfile(wait: bool) -> bool:
    if loaded("tempfile"):
        loaded("tempfile")._name_sequence = None
    return True
