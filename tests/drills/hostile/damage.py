"""Damage to a file: mostly one flipped bit, sometimes what disks, copies and editors do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

DIGITS = b"0123456789"


def flipped(data: bytes, rng: Random) -> tuple[str, bytes]:
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    return f"bit {bit} of byte {place}", _replaced(data, place, bytes([data[place] ^ 1 << bit]))


def another_digit(data: bytes, rng: Random) -> tuple[str, bytes]:
    """One digit of the text is another: what a bit flip rarely does and an editor easily."""
    places = [i for i, byte in enumerate(data) if byte in DIGITS]
    if not places:
        return flipped(data, rng)
    place = rng.choice(places)
    new = rng.choice(DIGITS.replace(data[place : place + 1], b""))
    return f"digit {chr(new)} for {chr(data[place])} at byte {place}", _replaced(data, place, bytes([new]))


def cut(data: bytes, rng: Random) -> tuple[str, bytes]:
    length = rng.randrange(len(data))
    return f"cut to {length} of {len(data)} bytes", data[:length]


def zeroed(data: bytes, rng: Random) -> tuple[str, bytes]:
    place, length = rng.randrange(len(data)), rng.choice((1, 16, 512, 4096))
    length = min(length, len(data) - place)
    return f"{length} zeros from byte {place}", _replaced(data, place, bytes(length))


OTHERS = (another_digit, cut, zeroed)
FLIPS = 0.85  # the share of single bits


def damage(path: Path, beside: Sequence[Path], rng: Random) -> str:
    """Damage a file in place; `beside` are files of its kind, for one to lie in its place. What was done."""
    draw = rng.random()
    data = path.read_bytes()
    if draw < FLIPS and data:
        what, new = flipped(data, rng)
    elif draw > 0.98 or not data:
        path.unlink()
        return "deleted"
    elif draw > 0.96 and beside:
        other = rng.choice(sorted(beside))
        what, new = f"replaced by {other.parent.name}/{other.name}", other.read_bytes()
    else:
        what, new = rng.choice(OTHERS)(data, rng)
    path.write_bytes(new)
    return what


def _replaced(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]
