"""Flips: a file of a finished, a stopped or a cached result is damaged, and whoever reads it is asked.

*detected*: a refusal or a warning that names the file or its run. *harmless*: the same answer. *silent*:
another answer. Files that no command reads (the page, the table for spreadsheets) can only be harmless.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

from drills.hostile.commands import OPTIONS, Answer, here, run
from drills.hostile.damage import damage
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same

STOPPED_SHARE, CACHED_SHARE = 0.08, 0.17  # the rest are finished; a stopped run costs the most to ask
OUT = "answer"  # what a command writes

# Commands about the finished run in `run`; they write to OUT.
COMMANDS: dict[str, tuple[str, ...]] = {
    "trace": ("trace", "run", "--request", "3", "--ad", "5", "--json"),
    "trace-first": ("trace", "run", "--request", "7", "--arm", "first", "--json"),
    "landscape": ("landscape", "run", "--ad", "3", "--points", "2", "--json", "--quiet"),
    "critical-bids": ("critical-bids", "run", "--arm", "now", "--impressions", "20", "--out", OUT, "--quiet"),
    "whatif": ("whatif", "run", "--set", "auction.reserve_cpc=0.1", "--out", OUT, "--quiet"),
    "compare": ("compare", "other", "run"),
    "report": ("report", "run", "--out", OUT),
    "baseline": ("baseline", "run", "--out", OUT),
    "check": ("check", "run", "--against", "baseline.json", "--quiet"),
    "resume": ("run", "market.yaml", "--out", "run", "--resume", *OPTIONS),
}
ANY = ("trace", "baseline")  # for files that nobody is known to read
# Who reads which file; the first pattern that fits.
READERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("baseline.json", ("check",)),
    ("run/manifest.json", ("trace", "compare", "report", "baseline", "check", "resume")),
    ("run/metrics.json", ("report", "compare", "baseline", "resume", "report", "whatif")),
    ("run/scenario.yaml", ("trace", "landscape", "critical-bids", "compare", "report")),
    ("run/blocks.json", ("baseline", "check")),
    ("run/logs/evaluate-now/*", ("table", "table", "trace", "critical-bids", "landscape", "compare")),
    ("run/logs/evaluate-first/*", ("table", "table", "trace-first")),
    ("run/logs/*", ("table",)),
    ("run/models/*", ("trace", "trace-first", "landscape")),
)


def prepare(prepared: Prepared) -> None:
    """A finished run with what is asked about it, and the undisturbed answers."""
    if "flips" in prepared.kept:
        return
    base = prepared.place("flips")
    shutil.copytree(prepared.finished("market"), base / "run")
    shutil.copytree(prepared.finished("plain"), base / "other")
    shutil.copy(prepared.scenario("market"), base / "market.yaml")
    before = Path.cwd()
    os.chdir(base)
    try:
        made = here(("baseline", "run", "--out", "baseline.json"))
        assert made.code == 0, made.err
        prepared.kept["flips"] = {name: _asked(name) for name in COMMANDS}
        tables = sorted(path.name for path in (base / "run" / "logs").iterdir())
        prepared.kept["flips"] |= {f"table {name}": _table(name) for name in tables}
        for name, (answer, _) in prepared.kept["flips"].items():
            assert answer.code == 0, f"{name}: {answer.err}"
    finally:
        os.chdir(before)
    prepared.kept["store"] = _loads(prepared)
    n = len(prepared.steps("market"))
    for at in _moments(n):
        prepared.stopped("market", at)


def _moments(n: int) -> tuple[int, ...]:
    """Where runs are stopped: in the log, before the last market arm ends, before the report."""
    return int(0.35 * n), int(0.8 * n), int(0.9 * n)


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    area = rng.random()
    if area < STOPPED_SHARE:
        return stopped(prepared, place, rng)
    if area < STOPPED_SHARE + CACHED_SHARE:
        return cached(prepared, place, rng)
    return finished(prepared, rng)


def finished(prepared: Prepared, rng: Random) -> Outcome:
    os.chdir(_own_copy(prepared))
    files = _files(Path("."), "run/*", "baseline.json")
    path = _drawn(files, rng)
    name = rng.choice(next((readers for pattern, readers in READERS if fnmatch(str(path), pattern)), ANY))
    data = path.read_bytes()
    what = f"{path}: {damage(path, [f for f in files if f.suffix == path.suffix and f != path], rng)}"
    try:
        if name == "table":
            name = f"table {path.parent.name}"
            answer, wrote = _table(path.parent.name)
        else:
            answer, wrote = _asked(name)
    finally:
        if name == "resume":  # may have made the run again
            shutil.rmtree("run")
            shutil.copytree(prepared.folder / "flips" / "run", "run")
        path.write_bytes(data)
    undisturbed, had_written = prepared.kept["flips"][name]
    same = wrote == had_written and answer.code == undisturbed.code
    same = same and timeless(answer.out) == timeless(undisturbed.out)
    return judged(f"{what}; {name}", answer, undisturbed, same, path)


def judged(what: str, answer: Answer, undisturbed: Answer, same: bool, path: Path) -> Outcome:
    """The verdict on an answer about a damaged file."""
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if same:
        return Outcome(HARMLESS if answer.err == undisturbed.err else DETECTED, what, answer.err)
    names = {path.name, path.parent.name, path.stem, str(path)} - {"", "."}
    more = any(
        now.count(name) > before.count(name)
        for name in names
        for now, before in ((answer.err, undisturbed.err), (answer.out, undisturbed.out))
    )
    if answer.code == 0:
        return Outcome(
            DETECTED if answer.err != undisturbed.err and more else SILENT, what, answer.last_words
        )
    if not answer.err.strip():
        return Outcome(SILENT, what, f"exit code {answer.code}, and not a word on stderr")
    return Outcome(DETECTED if more or "run" in answer.err else WRONG, what, answer.last_words)


def stopped(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    at = rng.choice(_moments(len(prepared.steps("market"))))
    out = place / "out"
    shutil.copytree(prepared.stopped("market", at), out)
    files = _files(out, "*")
    path = _drawn(files, rng)
    beside = [f for f in files if f.suffix == path.suffix and f != path]
    what = f"stopped at step {at}, {path.relative_to(out)}: {damage(path, beside, rng)}; run --resume"
    answer = run(prepared.words("market", out, "--resume"), place, cache=prepared.cache)
    return _resumed(prepared, "market", out, what, answer, path)


def _resumed(prepared: Prepared, name: str, out: Path, what: str, answer: Answer, path: Path) -> Outcome:
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.is_refusal:
        is_named = answer.names(path.name, str(path), str(out))
        return Outcome(DETECTED if is_named else WRONG, what, answer.last_words)
    other = check_same(prepared, name, out, answer)
    if other:
        return Outcome(SILENT, what, f"{other}\n{answer.err[-300:]}")
    return Outcome(DETECTED if path.name in answer.err else HARMLESS, what, answer.err[-300:])


def cached(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """A trained model in the cache: first by the call that reads it; if that says nothing, by a run."""
    cache = place / "cache"
    shutil.copytree(prepared.cache, cache)
    files = _files(cache, "*")
    path = _drawn(files, rng)
    beside = [f for f in files if f != path]
    what = f"cache/{path.name}: {damage(path, beside, rng)}"
    load = prepared.kept["store"].get(path.name)
    if load is not None and rng.random() > 0.05:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = load(cache)
            except Exception as error:
                return Outcome(CRASH, what, f"{type(error).__name__}: {error}")
        if found is None:
            is_told = any(path.name in str(warning.message) for warning in said)
            is_gone = what.endswith("deleted")
            return Outcome(DETECTED if is_told else HARMLESS if is_gone else WRONG, what)
        if found == load(prepared.cache):
            return Outcome(HARMLESS, what)
    out = place / "out"
    answer = run(prepared.words("plain", out), place, cache=cache)
    return _resumed(prepared, "plain", out, f"{what}; run", answer, path)


def _loads(prepared: Prepared) -> dict[str, Callable[[Path], str | None]]:
    """For each model in the cache: what loads it, giving a digest of the weights, or None if it will not."""
    from cascade_sim.storage.model_store import ModelStore

    asked: dict[str, tuple[str, Any]] = {}
    real = ModelStore.load

    def load(store: Any, key: str, module: Any) -> bool:
        asked[f"{key}.safetensors"] = key, copy.deepcopy(module)
        return real(store, key, module)

    ModelStore.load = load  # type: ignore[method-assign]
    try:
        place = prepared.place("store")
        answer = here(prepared.words("plain", place / "out"))
        assert answer.code == 0, answer.err
    finally:
        ModelStore.load = real  # type: ignore[method-assign]

    def loader(key: str, module: Any) -> Callable[[Path], str | None]:
        def loaded(cache: Path) -> str | None:
            own = copy.deepcopy(module)
            if not ModelStore(cache).load(key, own):
                return None
            total = hashlib.blake2b()
            for name, value in sorted(own.state_dict().items()):
                total.update(name.encode() + value.numpy().tobytes())
            return total.hexdigest()

        return loaded

    return {name: loader(key, module) for name, (key, module) in asked.items()}


def _own_copy(prepared: Prepared) -> Path:
    """This process's copy of the finished run, in which files are damaged and put back."""
    own = prepared.folder / f"flips-{os.getpid()}"
    if not own.exists():
        shutil.copytree(prepared.folder / "flips", own)
    return own


def _asked(name: str) -> tuple[Answer, dict[str, bytes]]:
    """The answer of a command, and what it wrote."""
    answer = here(COMMANDS[name])
    out = Path(OUT)
    wrote = {str(path): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    if out.is_file():
        wrote[OUT] = out.read_bytes()
        out.unlink()
    shutil.rmtree(out, ignore_errors=True)
    return answer, wrote


def timeless(text: str) -> str:
    return re.sub(r"\(\d+ s\)", "", text)


def _table(name: str) -> tuple[Answer, dict[str, bytes]]:
    """A table as whoever reads the logs gets it; a refusal as the command line would say it."""
    from cascade_sim.foundation.errors import UserError
    from cascade_sim.storage.tables import read_table

    try:
        columns = read_table("run", name)
    except UserError as error:
        return Answer(2, "", f"error: {error}\n"), {}
    except Exception as error:
        return Answer(1, "", f"Traceback (most recent call last)\n{type(error).__name__}: {error}"), {}
    return Answer(0, "", ""), {key: values.tobytes() for key, values in columns.items()}


def _files(folder: Path, *patterns: str) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return [p for p in found if any(fnmatch(str(p.relative_to(folder)), pattern) for pattern in patterns)]


def _drawn(files: list[Path], rng: Random) -> Path:
    """Half of the draws by file, half by byte: small files and large ones both get their share."""
    if rng.random() < 0.5:
        return rng.choice(files)
    return rng.choices(files, [path.stat().st_size for path in files])[0]
