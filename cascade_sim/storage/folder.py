"""The folder of a run: one writer at a time, whole files only, and clear words when it cannot be read.

Writing: `RunFolder.create` locks the folder, sets an earlier run aside and hands out atomic writes. The first
thing to write is manifest.json (status "running"), the last its final form with the seals of what was written
(`finish`). A finished run that lay there is kept whole in the folder `previous` until then.
Reading: `open_run` and `read_manifest` check before they return, and change nothing. Paths of the folder are
built by `files.below`, so that no link in it is followed by a reader, a writer or a removal.

The one writer holds a `Lock` (storage/lock.py), which dies with it and, where it is of another host, with
its lease.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cascade_sim.foundation import cleanup
from cascade_sim.foundation.errors import Notice, UserError, did_you_mean
from cascade_sim.storage import checksums, user_code
from cascade_sim.storage.checksums import LOGS, MANIFEST
from cascade_sim.storage.files import (
    below,
    flush,
    folder_inside,
    make_folder,
    parse_json,
    read_file,
    require_ours,
    storage_errors,
    write_file,
)
from cascade_sim.storage.lock import LOCK, Lock
from cascade_sim.storage.renamed import renamed_key
from cascade_sim.version import SEMANTICS

METRICS = "metrics.json"

IMPORTED = "imported log"  # the kind of a manifest whose folder holds a log rather than a run

MARKET = "market-"  # how the steps and tables of a market are called, before its arm

CHECKPOINTS = "checkpoints"  # marks and states of a run that is under way; gone when it is complete

ANSWERS = "whatif"  # what was asked of a finished run, a folder per question

# A finished run that is to be replaced, whole, until the one that replaces it is finished. It gets this name
# when all of it is there, and loses it before any of it is removed.
PREVIOUS = "previous"
_MOVING = ".previous.moving"
_GONE = ".previous.gone"

# What a run writes, and all that replacing it removes: a reader's own notes in the folder stay, and answers
# go only where the caller says so.
RUN_ENTRIES = (
    *(MANIFEST, METRICS, "metrics.csv", "scenario.yaml", "report.html", "blocks.json"),
    *("models", CHECKPOINTS, LOGS, "figures"),  # checkpoints go before the logs that they tell of
)

SHOWN = 3  # answers that a refusal names

USER_CODE = "user_code"  # of a manifest: {module or file of the user's own: digest}

LATE_CODE = "late_code"  # the same, of modules that came in while the run was under way

# What tells one run from another: a stopped run goes on only as the run it was.
IDENTITY = {
    "semantics": "another version's semantics",
    "scenario_hash": "another scenario (or other --set values)",
    "code": "another version of the code",
    "files": "other content of a file the scenario names, or of a module that its classes import",
    "packages": "other versions of Python or its packages",
    "device": "another --device",
    "seeds": "another number of --seeds",
    "learned_from": "models that learned from another log",
}


class RunFolder:
    """A locked run folder to write into. Use as a context manager; the lock goes when it ends."""

    def __init__(self, path: Path, lock: Lock, has_begun: bool = False) -> None:
        self.path = path
        self._lock = lock
        self._has_begun = has_begun  # whether a run that may go on lies here
        self._is_clearing = False  # whether what lies here is on its way out
        cleanup.register(lock, self.release)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        overwrite: bool = True,
        manifest: Mapping[str, Any] | None = None,
        remove_answers: bool = False,
    ) -> "RunFolder":
        """Make or take over the folder.

        A run of cascade_sim that lies there is replaced (a finished one when the new one is finished: until
        then it is in the folder `previous`), or refused without `overwrite`. A folder with other
        content is always refused, and so is one that another run is writing to. Answers that were asked of
        the run that lies there stay if it is the one of `manifest`, which will come out the same; with
        another run it is refused, or they go too with `remove_answers`.
        """
        folder = Path(path)

        def check() -> bool:
            """Whether the answers stay."""
            _check_replaceable(folder, overwrite)
            is_same = manifest is not None and is_same_run(folder, manifest)
            if not is_same and not remove_answers:
                _check_unanswered(folder)
            return is_same

        if _is_half_aside(folder):
            _check_replaceable(folder, overwrite)  # the rest when all is in its place again
        else:
            check()  # before anything is touched
        with storage_errors(folder):
            make_folder(folder)
            lock = Lock.take(folder)
        run = cls(folder, lock, has_begun=True)
        run._is_clearing = True
        try:
            with storage_errors(folder):
                _remove_unnamed(folder)  # before anything is looked at: it gets no name from here on
            with storage_errors(folder):
                _settle(folder)
            keeps_answers = check()  # it may have changed while the lock was taken
            with storage_errors(folder):
                if _is_finished(folder):
                    _set_aside(folder, keeps_answers)
                _clear(folder, keeps_answers)
                flush(folder)  # no checkpoint of an earlier run comes back beside the manifest of this one
            run._has_begun = run._is_clearing = False
        except BaseException:
            run.release()
            raise
        return run

    @classmethod
    def resume(cls, path: str | Path, manifest: Mapping[str, Any]) -> "RunFolder":
        """Take over a folder whose run was stopped, keeping what is finished of it.

        An absent or empty folder is taken as `create` does. A run that is not the same as `manifest` says, or
        that another process is writing, is a UserError.
        """
        folder = Path(path)
        if not below(folder, MANIFEST).exists() and not _is_half_aside(folder):
            return cls.create(folder)
        with storage_errors(folder):
            lock = Lock.take(folder)
        if not below(folder, MANIFEST).exists() and not _is_half_aside(folder):
            lock.leave()  # another run took the folder just before, and was stopped
            return cls.create(folder)
        run = cls(folder, lock, has_begun=True)
        try:
            with storage_errors(folder):
                _remove_unnamed(folder)
                _settle(folder)
            left = read_manifest(folder)
            what = difference(left, manifest)
            if what:
                raise UserError(f"{folder} holds a run of {what}: it cannot go on; run without --resume")
            with storage_errors(folder):
                if left.get("status") != "complete" or not below(folder, METRICS).exists():
                    _clear_unfinished(folder)
                else:  # it may have been stopped at its very last step
                    run.remove_checkpoints()
                    _remove_previous(folder)
        except BaseException:
            run.release()
            raise
        return run

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file whole; `name` may lead into sub-folders. Returns its path."""
        path = self._inside(name)
        folder_inside(self.path, *Path(name).parts[:-1])
        write_file(path, data)
        self._has_begun |= name == MANIFEST
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Write UTF-8 text whole."""
        return self.write_bytes(name, text.encode())

    def write_json(self, name: str, content: Any) -> Path:
        """Write JSON, the same bytes for the same content: sorted keys, indent 1. NaN is a ValueError."""
        return self.write_text(name, json_text(content))

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write manifest.json with its own seal."""
        self.write_json(MANIFEST, checksums.with_checksum(manifest))

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """All is written: the final manifest, with the seals of what is read back. What came before goes."""
        with storage_errors(self.path):
            sealed = checksums.checksums_of(self.path)
        self.write_manifest({**manifest, checksums.SEALS: sealed, "status": "complete"})
        self.remove_checkpoints()
        self._lock.require_held()
        with suppress(OSError, UserError):  # the run is complete; a rest of an older one does no harm
            _remove_previous(self.path)

    def is_complete(self) -> bool:
        """Whether the run that lies here had come to its end."""
        return below(self.path, METRICS).exists() and read_manifest(self.path).get("status") == "complete"

    def remove_logs(self) -> None:
        """Remove the logs, for who wants the metrics alone. The checkpoints, which need them, go first."""
        self.remove_checkpoints()
        with storage_errors(self.path):
            _remove_entry(self.path, LOGS)

    def remove_checkpoints(self) -> None:
        """Remove the checkpoints: the run is complete and has nothing left to go on with."""
        self._lock.require_held()
        with suppress(OSError):
            _remove_entry(self.path, CHECKPOINTS)

    def release(self) -> None:
        """Give the folder up. Releasing twice is harmless.

        Where nothing at all came of the new run, the one it was to replace is put back.
        """
        if self._lock.is_held:
            with suppress(OSError, UserError):
                if not self._has_begun:
                    _remove_unnamed(self.path)
                if not self._has_begun and below(self.path, PREVIOUS).is_dir():
                    # Half put back it is not whole, and must not have the name of what is.
                    os.rename(below(self.path, PREVIOUS), below(self.path, _MOVING))
                    flush(self.path)
                    _put_back(self.path, _MOVING)
                if self._is_clearing and _shows_by_its_lock(self.path):
                    self._lock.leave()
        self._lock.release()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        if isinstance(error, Exception) and not self.path.is_dir():  # whatever it led to
            raise UserError(
                f"{self.path} is not there any more: it was removed, or moved away, while the run was at "
                "work; run again"
            ) from error

    def _inside(self, name: str) -> Path:
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or parts == (LOCK,):
            raise ValueError(f"{name!r} is not the name of a file in a run folder")
        return below(self.path, *parts)


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    path: Path
    manifest: dict[str, Any]
    metrics: dict[str, Any]


def open_run(path: str | Path) -> Run:
    """A finished run. UserError if it is none, unfinished, damaged, or of another version's semantics.

    Nothing of it is run: what it says is read, and compared with its seals.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest.get("semantics") != SEMANTICS:
        raise UserError(
            f"{folder} was made with semantics {manifest.get('semantics')}, this version has {SEMANTICS}: "
            "its results do not compare; run the scenario again"
        )
    _check_manifest(folder, manifest)
    if manifest.get("kind") == IMPORTED and not below(folder, METRICS).exists():
        for name in manifest.get(checksums.SEALS) or {}:
            if name in checksums.SMALL:
                checksums.check_file(folder, name)
        return Run(folder, manifest, {})  # nothing was run: what was logged is in its store, sealed by itself
    if not below(folder, METRICS).exists():
        status = manifest.get("status", "unknown")
        raise UserError(
            f"{folder} has no {METRICS} (status: {status}): the run did not finish; "
            f"{_go_on(folder, manifest)}{_kept(folder)}"
        )
    known = manifest.get(checksums.SEALS)
    if not isinstance(known, dict):
        warnings.warn(
            f"{folder} is not sealed, as it is of an older version or not finished: whether its files were "
            "changed cannot be told",
            Notice,
            stacklevel=2,
        )
        known = {}
    small = [name for name in known if name in checksums.SMALL or name.endswith(f"/{MANIFEST}")]
    for name in small:
        checksums.check_file(folder, name, known)
    metrics = read_object(below(folder, METRICS))
    if renamed := renamed_key(metrics):
        raise UserError(
            f"{below(folder, METRICS)}: {renamed[0]} is called {renamed[1]} now: "
            "the run is of an older version; run the scenario again"
        )
    return Run(folder, manifest, metrics)


MANIFEST_TYPES: dict[str, type] = {
    **{key: dict for key in ("packages", "seconds", "micros", "processor")},
    **{key: int for key in ("seed", "seeds", "workers")},
    **{key: str for key in ("name", "version", "status", "started", "device")},
}

ENDS = ("value", "low", "high")


def _check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    for key, kind in MANIFEST_TYPES.items():
        value = manifest.get(key)
        if value is not None and not isinstance(value, kind):
            expected = {dict: "an object", int: "an integer", str: "text"}[kind]
            raise UserError(f"{below(folder, MANIFEST)}: {key} must be {expected}, found {value!r}")


def require_measures(run: Run) -> None:
    """UserError where the measures of a run's arms are not numbers: an edit went wrong."""
    file = below(run.path, METRICS)
    if not isinstance(run.metrics.get("arms"), dict):
        raise UserError(f"{file}: 'arms' must be an object of arms")
    for arm, metrics in run.metrics["arms"].items():
        if not isinstance(metrics, dict):
            raise UserError(f"{file}: arms.{arm} must be an object of metrics, found {metrics!r}")
        for metric, node in metrics.items():
            whole = [node, node.get("lift") or {}] if isinstance(node, dict) else [node]
            if not all(
                isinstance(part, dict) and all(_is_number(part.get(e)) for e in ENDS) for part in whole
            ):
                ends = ", ".join(ENDS)
                raise UserError(
                    f"{file}: arms.{arm}.{metric} must be an object with a number or null for {ends}"
                )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def read_manifest(path: str | Path) -> dict[str, Any]:
    """manifest.json of a run folder, finished or not. Nothing there is changed."""
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder" if folder.exists() else f"{folder} does not exist{_run_meant(folder)}"
        )
    if _is_half_aside(folder):
        raise UserError(
            f"{folder}: its run is half set aside, in {_MOVING}: one that is to replace it is at work, or "
            f"was stopped; {_go_on(folder, {}, 'puts it back')}"
        )
    if not below(folder, MANIFEST).exists():
        if Lock.is_ours(folder) and not _has_previous(folder):
            raise UserError(
                f"{folder} has no {MANIFEST} yet: a run began there and is at work, or was stopped; "
                f"{_go_on(folder, {})}"
            )
        raise UserError(f"{folder} is not a run folder: it has no {MANIFEST}{_kept(folder)}")
    return _own_manifest(folder)


def _own_manifest(folder: Path) -> dict[str, Any]:
    file = below(folder, MANIFEST)
    manifest = read_object(file)
    checksums.check_manifest(file, manifest)
    return manifest


def _go_on(folder: Path, manifest: Mapping[str, Any], what: str = "resumes it") -> str:
    """The command that resumes a stopped run, in words."""
    seeds = manifest.get("seeds")
    many = f" --seeds {seeds}" if isinstance(seeds, int) and seeds > 1 else ""
    return (
        f"`python -m cascade_sim run SCENARIO --out {folder}{many} --resume`, with the scenario of the run, "
        f"{what}"
    )


def _is_half_aside(folder: Path) -> bool:
    """Whether a kill left the run between its place and `previous`."""
    return below(folder, _MOVING).is_dir()


def _has_previous(folder: Path, name: str = PREVIOUS) -> bool:
    return below(folder, name, MANIFEST).is_file()


def _kept(folder: Path) -> str:
    """Where the run is that an unfinished one was to replace."""
    is_there = _has_previous(folder)
    return f"; the run that it was to replace is whole in {below(folder, PREVIOUS)}" if is_there else ""


def _run_meant(folder: Path) -> str:
    """A suggestion where a run of nearly that path is there, or of that name in runs/."""
    near = {str(file.parent) for home in (folder.parent, Path("runs")) for file in home.glob(f"*/{MANIFEST}")}
    named = str(Path("runs") / folder.name)
    return f"; did you mean '{named}'?" if named in near else did_you_mean(str(folder), sorted(near))


def is_same_run(path: str | Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the run that lies there, finished or not, is the one that this manifest describes."""
    try:
        left = read_manifest(path)
    except UserError:
        return False
    return not difference(left, manifest)


def difference(left: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """What tells the run that was left apart from the one that is wanted; "" if nothing does."""
    for key, what in IDENTITY.items():
        if left.get(key) != manifest.get(key):
            before, now = ({**(run.get(USER_CODE) or {})} for run in (left, manifest))
            changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            return f"{what} ({', '.join(changed)})" if key == "files" and changed else what
    # What classes import while they are at work is known only of the run that was left.
    late = left.get(LATE_CODE) or {}
    changed = [name for name, was in late.items() if user_code.digest_now(name) != was]
    return f"{IDENTITY['files']} ({', '.join(changed)})" if changed else ""


def default_folder(name: str) -> Path:
    """Where a study of this name goes by default."""
    return Path("runs") / name


def is_done(folder: Path, step: str) -> bool:
    """Whether a stopped run had finished this step."""
    return below(folder, CHECKPOINTS, f"{step}.keep").is_file()


def keep(folder: Path, step: str, tables: Iterable[str], *, is_finished: bool = True) -> None:
    """Mark the tables of a step as worth keeping, should the run be stopped from here on.

    Of a finished step the mark says what they hold. One that is under way has a state that says it.
    """
    from cascade_sim.storage.tables import sealed_digest

    marks = folder_inside(folder, CHECKPOINTS)
    mark = {table: sealed_digest(folder, table) if is_finished else None for table in tables}
    path = marks / f"{step}.keep"
    write_file(path, checksums.wrapped(mark, path.name))


def json_text(content: Any) -> str:
    """Canonical JSON text with a newline at the end; numpy's numbers and arrays count as numbers and lists.

    NaN or infinity is a ValueError: write None where a value is undefined.
    """
    return (
        json.dumps(content, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False, default=_plain)
        + "\n"
    )


def read_object(path: Path, *, follows: bool = False) -> dict[str, Any]:
    """The JSON object in a file, as `files.opened`; UserError with line and column if it is none."""
    try:
        content = parse_json(read_file(path, follows=follows))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}:{error.colno} is not JSON: {error.msg}") from error
    except ValueError as error:  # not text, or what no result holds
        raise UserError(f"{path} is not JSON that can be read: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, not a JSON object")
    return content


def _plain(value: Any) -> Any:
    """A numpy scalar or array as plain numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} does not belong into JSON")


def _check_replaceable(folder: Path, overwrite: bool) -> None:
    """UserError if a run written here would remove what is not a run's, or a run without `overwrite`."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder for the run")
    try:
        entries = [name for name in os.listdir(folder) if name != LOCK]
        is_run = _is_run(folder) or _is_run(folder)  # twice: another may be taking it just now
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error
    if entries and not is_run:
        raise UserError(f"{folder} is not empty and not a run of cascade_sim; give another folder")
    if below(folder, MANIFEST).exists() and not overwrite:
        raise UserError(f"{folder} already holds a run; give another folder")


def _is_run(folder: Path) -> bool:
    """A run shows by its manifest or, if it was killed early, by the lock or the earlier run it left."""
    if any([_has_previous(folder, name) for name in (PREVIOUS, _MOVING)]) or Lock.is_ours(folder):
        return True
    with suppress(UserError):
        manifest = _own_manifest(folder)
        return "semantics" in manifest and "scenario_hash" in manifest
    return False


def _shows_by_its_lock(folder: Path) -> bool:
    """Whether all that tells a run here from other files is the lock: it is half cleared."""
    names = set(os.listdir(folder)) - {LOCK}
    return bool(names) and not names & {MANIFEST, _MOVING, PREVIOUS}


def _clear_unfinished(folder: Path) -> None:
    """Remove what a stopped run left half done: tables that no mark in checkpoints/ keeps, unnamed files.

    A step whose tables are not what its mark says is not finished: it is forgotten and will be done again.
    """
    for name in RUN_ENTRIES:
        below(folder, name)  # no link among them
    below(folder, METRICS).unlink(missing_ok=True)  # measured again: its tables may go
    kept: set[str] = set()
    checkpoints = below(folder, CHECKPOINTS)
    for mark in checkpoints.glob("*.keep"):
        fault, names = _marked(folder, mark)
        if not fault:
            kept |= names
            continue
        warnings.warn(f"{fault}: {mark.stem} is done again", Notice, stacklevel=3)
        mark.unlink()
    for left in [*checkpoints.glob("*.npz"), *checkpoints.glob("*.json")]:
        if not below(checkpoints, f"{MARKET}{left.stem}.keep").is_file():
            left.unlink()  # the state or the figures of tables that are no more
    logs = below(folder, LOGS)
    for table in logs.glob("*"):
        if table.name not in kept and not table.name.startswith("."):  # a desktop's own files are no tables
            _remove_entry(logs, table.name)


def _marked(folder: Path, mark: Path) -> tuple[str, set[str]]:
    """What is wrong with a step that a stopped run had marked ("": nothing), and the names of its tables."""
    from cascade_sim.storage.tables import table_digest

    try:
        content = checksums.unwrapped(mark)
        digests = {str(table): digest for table, digest in content.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return f"{mark} is damaged", set()
    for table, digest in digests.items():
        try:
            is_same = digest is None or table_digest(folder, table) == digest
        except UserError as error:
            return str(error), set()
        if not is_same:
            place = below(folder, LOGS, table)
            what = "has changed" if place.is_dir() else "is gone"
            return f"{place} {what} since the run was stopped", set()
    return "", set(digests)


def _check_unanswered(folder: Path) -> None:
    """UserError if the folder, or a world in it, holds what was asked of a run that is to be replaced."""
    left = [f"{ANSWERS}/{name}" for name in _content(below(folder, ANSWERS))]
    for world in _worlds(folder):
        left += [f"{world.name}/{ANSWERS}/{name}" for name in _content(below(world, ANSWERS))]
        # A study's worlds are removed with all that is in them: a user's notes there are lost as well.
        left += [
            f"{world.name}/{name}"
            for name in _content(world)
            if name not in (*RUN_ENTRIES, ANSWERS, PREVIOUS)
        ]
    if left:
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        raise UserError(
            f"{folder} holds answers about the run that is there, which another run would replace: "
            f"{', '.join(left[:SHOWN])}{more}; give another folder, move them away, or run with --overwrite "
            "to remove them"
        )


def _content(folder: Path) -> list[str]:
    """Names in a folder, sorted, but for what is hidden."""
    return sorted(name for name in os.listdir(folder) if name[0] != ".") if folder.is_dir() else []


def _worlds(folder: Path) -> list[Path]:
    """The runs of a study over several worlds, one per seed."""
    found = sorted(folder.glob("seed-*"))
    return [world for world in found if _is_own_folder(world) and _is_run(world)]


def _clear(folder: Path, keeps_answers: bool) -> None:
    """Remove an earlier run, its manifest first: what a kill leaves then shows as unfinished by its lock.

    Beside answers that stay the manifest does too: it says which run they were asked of.
    """
    own = RUN_ENTRIES[1:] if keeps_answers else (*RUN_ENTRIES, ANSWERS)
    for name in own:
        _remove_entry(folder, name)
    for world in _worlds(folder):
        if not keeps_answers:
            _remove(world)
        for name in own if keeps_answers else ():
            _remove_entry(world, name)


def _remove_unnamed(folder: Path) -> None:
    """Remove files that were being written, and never got their name; nor will they (see `files.seal`)."""
    unnamed = ".*.[0-9]*.tmp"
    inside = [
        folder / name for name in RUN_ENTRIES if _is_own_folder(folder / name)
    ]  # a world has its own lock
    for left in [*folder.glob(unnamed), *(file for place in inside for file in place.rglob(unnamed))]:
        left.unlink(missing_ok=True)


def _is_finished(folder: Path) -> bool:
    """Whether a run that had come to its end lies here."""
    try:
        manifest = read_object(below(folder, MANIFEST))
        return manifest.get("status") == "complete" and below(folder, METRICS).is_file()
    except UserError:
        return False


def _set_aside(folder: Path, keeps_answers: bool) -> None:
    """Move a finished run into `previous`: after a kill at any step all of it is in one of two places."""
    _remove_previous(folder)  # of a run that was finished in its place
    aside = below(folder, _MOVING)
    make_folder(aside)
    names = (*RUN_ENTRIES, ANSWERS)
    worlds = [world.name for world in _worlds(folder)]
    if keeps_answers:
        # They stay, and with them the manifest, which says which run they were asked of.
        for place, to in ((folder, aside), *((folder / world, aside / world) for world in worlds)):
            make_folder(to)
            for name in RUN_ENTRIES:
                if name != MANIFEST:
                    _move(place, name, to)
            write_file(below(to, MANIFEST), read_file(below(place, MANIFEST)))
    else:
        for name in (*(name for name in names if name != MANIFEST), *worlds, MANIFEST):  # the manifest last
            _move(folder, name, aside)
    flush(aside)  # all of it, and then its name
    os.rename(aside, below(folder, PREVIOUS))


def _move(folder: Path, name: str, to: Path) -> None:
    """Move an entry, a link as the link it is."""
    require_ours(to / name)
    if os.path.lexists(folder / name):
        os.rename(folder / name, to / name)


def _put_back(folder: Path, name: str) -> None:
    """Undo `_set_aside`, whole or half done: what is in both places (a manifest) is the same."""
    aside = below(folder, name)
    for entry in sorted(os.listdir(aside), key=lambda entry: entry == MANIFEST):
        if entry == LOCK:
            raise UserError(f"{aside / entry}: a run that was set aside has no lock; remove it")
        _put_back_entry(aside, entry, folder)
    flush(folder)
    aside.rmdir()


def _put_back_entry(aside: Path, name: str, folder: Path) -> None:
    """Move an entry to where it was; a folder that is in both places, entry by entry."""
    entry, there = aside / name, folder / name
    if not _is_own_folder(entry) or not _is_own_folder(there):
        os.replace(entry, there)
        return
    for inner in sorted(os.listdir(entry), key=lambda inner: inner == MANIFEST):
        _put_back_entry(entry, inner, there)
    entry.rmdir()


def _is_own_folder(path: Path) -> bool:
    """Whether there is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _settle(folder: Path) -> None:
    """Under the lock: end what a kill interrupted between two steps."""
    if _is_half_aside(folder):
        _put_back(folder, _MOVING)
    if below(folder, _GONE).is_dir():
        _remove_entry(folder, _GONE)


def _remove_previous(folder: Path) -> None:
    """Remove the run in `previous`; its name goes first, so a half removed one is not taken for it."""
    gone = below(folder, _GONE)
    _remove_entry(folder, _GONE)
    if below(folder, PREVIOUS).is_dir():
        os.rename(below(folder, PREVIOUS), gone)
        flush(folder)
        _remove_entry(folder, _GONE)


def _remove_entry(folder: Path, name: str) -> None:
    """Remove a file, a folder with all that is in it, or a link and not what it leads to."""
    entry = folder / name
    require_ours(entry)
    if _is_own_folder(entry):
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def _remove(world: Path) -> None:
    """Remove a run folder, its manifest last: what a kill leaves of it still shows as a run."""
    for name in os.listdir(world):
        if name != MANIFEST:
            _remove_entry(world, name)
    shutil.rmtree(world)
