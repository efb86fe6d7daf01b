"""The hostile drill itself: draws that can be repeated, and planted weaknesses that it must find."""

from __future__ import annotations

import copy
import os
import random
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from drills.hostile import (
    classes,
    clocks,
    damage,
    disks,
    flips,
    links,
    mutants,
    races,
    resealed,
    stops,
    tool,
    torn,
)
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome, Result, rng_of, table
from drills.hostile.pool import run_cases
from drills.hostile.steps import Steps

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the drill forks a process for each case")
CASES = tool._cases()


def test_a_case_draws_the_same_whatever_ran_before_it():
    first = [rng_of(3, "flips", i).random() for i in range(5)]
    assert [rng_of(3, "flips", i).random() for i in reversed(range(5))] == first[::-1]
    assert len({*first, rng_of(4, "flips", 0).random(), rng_of(3, "kills", 0).random()}) == 7


def test_the_table_counts_by_kind_and_verdict():
    results = [
        Result("kills", 0, Outcome(HARMLESS, ""), 1.2),
        Result("flips", 0, Outcome(DETECTED, ""), 0.5),
        Result("flips", 1, Outcome(SILENT, ""), 0.5),
        Result("flips", 2, Outcome(CRASH, ""), 0.0),
    ]
    head, kills, flip, total = (line.split() for line in table(results).splitlines())
    assert head == [
        "kind",
        "cases",
        "detected",
        "harmless",
        "silent",
        "crash",
        "wrong",
        "failures",
        "CPU",
        "s",
    ]
    assert kills == ["kills", "1", "0", "1", "0", "0", "0", "0", "1"]
    assert flip == ["flips", "3", "1", "0", "1", "1", "0", "2", "1"]
    assert total == ["all", "4", "1", "1", "1", "1", "0", "2", "2"]


def test_every_damage_changes_the_file(tmp_path):
    rng = random.Random(1)
    done = set()
    for _ in range(400):
        path, beside = tmp_path / "a.json", tmp_path / "b.json"
        path.write_bytes(b'{"a": 12}')
        beside.write_bytes(b'{"b": 7}')
        what = damage.damage(path, [beside], rng)
        done.add(what.split()[0])
        assert (path.read_bytes() if path.exists() else None) != b'{"a": 12}', what
    assert done >= {"bit", "digit", "cut", "deleted", "replaced"}


@forks
def test_steps_of_writing_are_counted_below_the_folder_alone(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    outside.mkdir()
    pid = os.fork()
    if not pid:
        steps = Steps([inside], {5}, lambda what: os._exit(50 + len(steps.labels)))
        steps.plant()
        inside.mkdir()  # 1
        (outside / "b").write_text("b")
        (inside / "a").write_text("a")  # 2
        (inside / "a").read_text()
        os.replace(inside / "a", inside / "c")  # 3
        shutil.rmtree(inside)  # 4 the file, 5 the folder
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 55
    assert inside.exists() and list(inside.iterdir()) == []


def lost(place: Path, disk: torn.Disk) -> set[bytes | None]:
    """What may be found of the file out/a after power cuts."""
    found = set()
    for seed in range(60):
        cut = copy.deepcopy(disk)
        cut.lose(random.Random(seed))
        file = place / torn.AFTER / "out" / "a"
        found.add(file.read_bytes() if file.exists() else None)
        shutil.rmtree(place / torn.AFTER)
    return found


@pytest.mark.parametrize("is_ordered", [True, False])
def test_what_was_not_flushed_may_be_lost_and_no_more(tmp_path, is_ordered):
    (tmp_path / "out").mkdir()
    disk, file, temp = torn.Disk(tmp_path, is_ordered), tmp_path / "out" / "a", tmp_path / "out" / "b"
    temp.write_bytes(b"1234")
    disk.look()
    os.replace(temp, file)
    assert lost(tmp_path, disk) >= {None, b"", b"1234", bytes(4), b"12"}
    disk.flushed(str(file))
    assert lost(tmp_path, disk) == ({b"1234"} if is_ordered else {None, b"1234"})
    disk.flushed(str(file.parent))
    assert lost(tmp_path, disk) == {b"1234"}
    temp.write_bytes(b"5678")
    disk.look()
    os.replace(temp, file)  # named before it was flushed
    assert lost(tmp_path, disk) >= {b"1234", b"", b"5678"}
    shutil.rmtree(tmp_path / "out")
    disk.look()
    assert None in lost(tmp_path, disk)


@pytest.mark.parametrize("sort", classes.SORTS)
def test_every_trouble_makes_a_class_that_python_reads(sort):
    for trouble in classes.troubles():
        for method in classes.SORTS[sort][1]:
            text = classes.source(sort, method, trouble.code, 3)
            compile(text, "own_class.py", "exec")
            assert "count >= 3" in text
    assert classes.TROUBLE not in classes.source(sort)


def test_there_are_enough_troubles():
    kinds = [trouble for trouble in classes.troubles() for _ in trouble.sorts]
    assert len(kinds) > 150


def test_mutants_differ_and_are_drawn_by_their_generator():
    text, data = mutants._texts()["market"]

    def some(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [mutants.torn(text, rng)[1] for _ in range(50)]

    assert some(1) == some(1) != some(2)
    assert ("models", "rank", "hidden") in set(mutants.places(data))


@pytest.fixture(scope="module")
def prepared():
    """What cases start from, with the product as it is."""
    with tool.work_folder() as folder:
        yield tool.prepare(folder, list(tool.KINDS))


def outcomes(prepared, kind: str, indices: Iterable[int]) -> list[Outcome]:
    """Some cases of a kind, in processes that see what is patched here."""
    cases = [(kind, index) for index in indices]
    results = sorted(run_cases(prepared, CASES, cases, seed=1), key=lambda result: result.index)
    assert [(result.kind, result.index) for result in results] == cases
    return [result.outcome for result in results]


def first_bad(prepared, kind: str, most: int) -> Outcome | None:
    """The first failure of a kind; None if so many cases have none."""
    results = run_cases(prepared, CASES, [(kind, index) for index in range(most)], seed=1)
    found = next((result.outcome for result in results if result.outcome.is_failure), None)
    results.close()
    return found


def place_of(prepared) -> Path:
    return prepared.place("here")


@forks
@pytest.mark.drill
class TestPlantedWeaknesses:
    """Each takes away one thing that keeps results right; the drill must notice."""

    def test_a_case_is_the_same_when_it_is_run_again_alone(self, prepared):
        together = outcomes(prepared, "flips", range(12))
        assert outcomes(prepared, "flips", [7, 11]) == [together[7], together[11]]

    def test_a_process_that_dies_is_a_crash_and_the_next_case_follows(self, prepared):
        def case(prepared, place, rng):
            if rng.random() < 0.5:
                os.kill(os.getpid(), signal.SIGKILL)
            return Outcome(HARMLESS, "")

        results = list(run_cases(prepared, {"x": case}, [("x", i) for i in range(20)], 1, jobs=2))
        assert sorted(result.index for result in results) == list(range(20))
        assert {result.outcome.verdict for result in results} == {HARMLESS, CRASH}

    def test_tables_read_without_a_look_at_their_digest(self, prepared, monkeypatch):
        monkeypatch.setattr("cascade_sim.storage.tables.PartList.check_content", lambda *_: None)
        rng = random.Random(1)
        found = [flips.finished(prepared, rng) for _ in range(150)]
        silent = [one for one in found if one.verdict in (SILENT, CRASH) and "parquet" in one.what]
        assert silent, [one.what for one in found]

    def test_cached_weights_without_a_digest(self, prepared, monkeypatch):
        monkeypatch.setattr("cascade_sim.storage.model_store._digest", lambda *_: "0" * 32)
        assert {SILENT, CRASH, WRONG} & verdicts_of_cached(prepared)

    def test_a_market_that_goes_on_without_its_state(self, prepared, monkeypatch):
        monkeypatch.setattr("cascade_sim.market.run.MarketRun.restore", lambda self, state: None)
        found = first_bad(prepared, "kills", 40)
        assert found is not None and found.verdict == SILENT and "differs" in found.said

    def test_an_interrupt_that_is_swallowed(self, prepared, monkeypatch):
        def main(words):
            from cascade_sim.cli import cli

            try:
                cli.main(list(words), standalone_mode=False)
            except BaseException:
                return 1
            return 0

        monkeypatch.setattr("cascade_sim.cli.main", main)
        found = first_bad(prepared, "signals", 20)
        assert found is not None and found.verdict == WRONG and "exit code 1" in found.said

    def test_a_folder_without_a_lock(self, prepared, monkeypatch):
        import fcntl

        monkeypatch.setattr(fcntl, "flock", lambda *_: None)
        assert first_bad(prepared, "races", 40) is not None

    def test_a_full_disk_that_nobody_mentions(self, prepared, monkeypatch):
        from contextlib import nullcontext

        for module in ("files", "folder", "tables", "model_store"):
            monkeypatch.setattr(f"cascade_sim.storage.{module}.storage_errors", lambda *_: nullcontext())
        found = first_bad(prepared, "disks", 20)
        assert found is not None and found.is_failure

    def test_folders_that_are_never_flushed(self, prepared, monkeypatch):
        from cascade_sim.storage import files

        def flush(path):
            if path.is_file():
                real(path)

        real = files.flush
        for module in ("files", "folder", "lock"):
            monkeypatch.setattr(f"cascade_sim.storage.{module}.flush", flush)
        found = first_bad(prepared, "torn", 40)
        assert found is not None and "not whole" in found.said

    def test_a_lock_that_is_never_looked_at_again(self, prepared, monkeypatch):
        from cascade_sim.storage.lock import Lock

        monkeypatch.setattr(Lock, "is_held", property(lambda lock: lock._handle is not None))
        assert first_bad(prepared, "clocks", 40) is not None

    def test_a_new_owner_that_leaves_what_has_no_name(self, prepared, monkeypatch):
        """A process that was paused just before a rename then overwrites what is another's."""
        monkeypatch.setattr("cascade_sim.storage.folder._remove_unnamed", lambda folder: None)
        assert first_bad(prepared, "clocks", 60) is not None

    def test_a_check_of_scenarios_that_trips_over_its_input(self, prepared, monkeypatch):
        def check(scenario, *_):
            return [] if scenario.report.baseline in scenario.arms else {}[scenario.report.baseline]

        monkeypatch.setattr("cascade_sim.scenario.file.check_scenario", check)
        found = first_bad(prepared, "mutants", 300)
        assert found is not None and found.verdict == CRASH

    def test_a_class_with_other_results_that_no_check_has_found(self, prepared):
        place = place_of(prepared)
        answer = classes._run(prepared, place, "bidder", classes.source("bidder", "bids", "result *= 0.5"))
        found = classes.judged(prepared, place, "bidder", "", answer, is_found=False, must_be_early=True)
        assert (answer.code, found.verdict) == (0, SILENT)


def verdicts_of_cached(prepared) -> set[str]:
    rng = random.Random(1)
    return {flips.cached(prepared, place_of(prepared), rng).verdict for _ in range(12)}


def test_kinds_have_small_and_large_counts():
    assert set(tool.SMALL) == set(tool.NIGHTLY) == set(tool.KINDS)
    modules = (flips, resealed, stops, mutants, classes, races, disks, links, torn, clocks)
    assert {module.prepare for module in modules} == {prepare for prepare, _ in tool.KINDS.values()}


def test_what_is_put_into_a_mutant_is_a_copy():
    before = repr(mutants.OTHERS)
    for i in range(300):
        data = {"a": {"b": [1, 2]}, "c": 3}
        rng = rng_of(1, "mutants", i)
        for _ in range(4):
            mutants.mutate(data, rng)
    assert repr(mutants.OTHERS) == before
