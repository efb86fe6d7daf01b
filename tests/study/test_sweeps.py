"""A real sweep over a tiny world: cells, lifts by world, and going on after a stop."""

import csv
import json

import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.scenario.file import load_scenario
from cascade_sim.storage.folder import read_manifest
from cascade_sim.study.sweeps import cell_folder, load_grid, parse_axes, sweep_statement, with_reference
from cascade_sim.training import fit as recipes
from worlds.pool_jobs import in_this_process
from worlds.tiny_market import QUICK, TINY

# No model is trained: the arms are served by built-in seats.
PLAIN = (
    *TINY,
    *("phases.cold_start=0", "phases.log=0", "phases.shadow=0", "phases.evaluate=128", "traffic.block=128"),
    *("report.resamples=20", "report.detail_requests=8", "report.baseline=now"),
    "models={}",
    "cascade.pre_ranking.model=random",
    "cascade.ranking.model=truth",
    "arms={now: {}, other: {ranking: {bid: opt}}}",
)
LEARNING = (
    *("phases.cold_start=150", "phases.log=150", "models={mine: {kind: towers, data: [log], epochs: 1}}"),
    *("cascade.pre_ranking.model=mine", "arms={now: {}}"),
)
OVER = ("--over", "auction.reserve_cpc=0,0.5", "--over", "cascade.slots=2,3")


def sweep(out, *options, over=OVER):
    changes = [part for change in PLAIN for part in ("--set", change)]
    return main(
        ["sweep", str(QUICK), *changes, *over, "--workers", "1", "--quiet", "--out", str(out), *options]
    )


def cells_of(over=OVER, changes=PLAIN):
    axes = parse_axes(over[1::2])
    return with_reference(QUICK, axes, load_grid(QUICK, axes, changes), changes)[1]


def rows(out):
    return list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
        assert sweep(folder, "--seeds", "2") == 0
    return folder


def test_every_cell_leaves_a_complete_run_without_logs(out):
    cells = cells_of()
    for cell in cells:
        for seed in (1, 2):
            folder = cell_folder(out, cell) / f"seed-{seed}"
            assert read_manifest(folder)["status"] == "complete"
            assert not (folder / "logs").exists() and (folder / "metrics.json").exists()
    assert len(rows(out)) == len(cells) == 4


def test_lifts_are_taken_world_by_world_against_the_scenarios_own_setting(out):
    name = "expected_revenue_per_request"
    cells = cells_of()
    assert cells[0].name == rows(out)[0]["cell"] == "reserve_cpc=0, slots=3"

    def value(cell, seed):
        text = (cell_folder(out, cell) / f"seed-{seed}" / "metrics.json").read_text()
        return json.loads(text)["arms"]["now"][name]["value"]

    lifts = [value(cells[3], seed) / value(cells[0], seed) - 1 for seed in (1, 2)]
    row = rows(out)[3]
    assert float(row[f"{name} lift"]) == pytest.approx(sum(lifts) / 2)
    # Student t of one degree of freedom: 12.706 standard errors, here |difference| / 2
    half = 12.7062 * abs(lifts[0] - lifts[1]) / 2
    assert float(row[f"{name} lift high"]) - float(row[f"{name} lift"]) == pytest.approx(half, rel=1e-4)


def test_a_grid_that_grows_keeps_what_is_finished(out, capsys, monkeypatch):
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)

    def stamps():
        return {f: f.stat().st_mtime_ns for f in (out / "cells").rglob("metrics.json")}

    before = stamps()
    grown = ("--over", "auction.reserve_cpc=0,0.2,0.5", "--over", "cascade.slots=3")
    assert sweep(out, "--seeds", "1", "--arm", "other", over=grown) == 0
    after = stamps()
    assert {f: after[f] for f in before} == before and len(after) == len(before) + 1
    text = capsys.readouterr().out
    assert tells(text, "3 cells", "arm other", "seed 1")
    # In one world the lift has an interval from groups of requests.
    last = rows(out)[2]
    low, lift, high = (float(last[f"expected_ctr lift{end}"]) for end in (" low", "", " high"))
    assert low < lift < high
    assert last["proxy_ece lift low"] == ""


def no_processes(jobs, workers, *, on_done=None, go_on=""):
    raise AssertionError(f"processes for {[job.name for job in jobs]}")


def test_finished_cells_are_read_without_starting_processes(out, capsys, monkeypatch):
    before = (out / "sweep.csv").read_bytes()
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
    assert sweep(out, "--seeds", "2") == 0
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", no_processes)
    again = (out / "sweep.csv").read_bytes()
    assert sweep(out, "--seeds", "2") == 0
    assert (out / "sweep.csv").read_bytes() == again
    assert before.splitlines()[0] == again.splitlines()[0]
    with pytest.raises(AssertionError, match="slots=3, seed 3"):  # and for a new world of theirs, one
        sweep(out, "--seeds", "3", over=("--over", "auction.reserve_cpc=0", "--over", "cascade.slots=3"))


def test_the_reference_is_the_scenarios_own_setting_in_the_grid_or_a_cell_more():
    assert [cell.name for cell in cells_of()] == [
        *("reserve_cpc=0, slots=3", "reserve_cpc=0, slots=2"),
        *("reserve_cpc=0.5, slots=2", "reserve_cpc=0.5, slots=3"),
    ]
    over = ("--over", "auction.squashing=0.8", "--over", "arms.other.slots=2")
    own, other = cells_of(over)
    assert own.settings == {"auction.squashing": "1.0", "arms.other.slots": "unset"}
    assert own.scenario == load_scenario(QUICK, PLAIN) and other.settings["auction.squashing"] == "0.8"


def test_fixed_models_agree_with_whatif_to_the_last_digit(out, capsys, monkeypatch):
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
    assert sweep(out, "--seeds", "1", "--fixed-models") == 0
    text = capsys.readouterr().out
    assert tells(text, "Held fixed:", "Learned again:\n  nothing:")
    reference, *others = cells_of()
    run, found = cell_folder(out, reference) / "seed-1", {row["cell"]: row for row in rows(out)}
    for cell in others:
        answer = what_if_study(run, [f"{key}={value}" for key, value in cell.settings.items()])
        measures = answer["points"][0]["metrics"]
        assert len(measures) > 20 and answer["learned_again"]
        for name, entry in measures.items():
            row, lift = found[cell.name], entry.get("lift") or {}
            told = [node.get(end) for node in (entry, lift) for end in ("value", "low", "high")]
            ends = ("", " low", " high", " lift", " lift low", " lift high")
            assert [row[name + end] for end in ends] == ["" if x is None else repr(x) for x in told], name


def test_a_sweep_says_what_was_held_fixed_and_what_learned_again():
    changes = (*PLAIN, *LEARNING)

    def learned(*over, retrain=False):
        return " ".join(sweep_statement(cells_of(over, changes), retrain).learned_again)

    assert learned("--over", "auction.squashing=0.5,0.8").startswith("nothing")
    assert tells(learned("--over", "auction.squashing=0.8", retrain=True), "every cell")
    more = learned("--over", "models.mine.epochs=2,3")
    assert "2 of 3 cells" in more and "cascade of epochs=1 writes" in more
    assert learned("--over", "phases.evaluate=100,200").startswith("nothing")  # from which nothing is learned
    held = sweep_statement(cells_of(("--over", "world.users=200"), changes), False).held_fixed
    assert any(tells(line, "users=200:") for line in held)


@pytest.mark.drill
def test_a_log_gets_a_line_for_every_world_that_is_finished(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
    options = ["--seeds", "1", "--workers", "1", "--out", str(tmp_path / "out")]
    options += [part for change in (*PLAIN, "cascade.slots=1") for part in ("--set", change)]

    def lines(values):
        assert main(["sweep", str(QUICK), *options, "--over", f"cascade.slots={values}"]) == 0
        return [line.split("] ", 1)[1] for line in capsys.readouterr().err.splitlines()]

    first = lines("1,2")
    assert first[0] == "cells: 2 worlds"
    assert tells(first[1], "slots=1, seed 1", "1 of 2", "50 %")
    assert tells(first[2], "slots=2, seed 1", "2 of 2", "100 %")
    grown = lines("1,2,3")
    assert any(tells(line, "2 of 3", "already") for line in grown)
    assert grown[-1] == "cells: slots=3, seed 1 finished"
    assert lines("1,2,3") == []


@pytest.mark.drill
@pytest.mark.parametrize("retrain", [False, True])
def test_cells_share_the_models_of_the_first_unless_each_is_to_learn_from_its_own_log(
    tmp_path, monkeypatch, retrain
):
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
    monkeypatch.setenv("CASCADE_SIM_CACHE", str(tmp_path / "cache"))
    trained, real = [], recipes.train
    monkeypatch.setattr(recipes, "train", lambda *a, **k: trained.append(1) or real(*a, **k))
    changes = [part for change in LEARNING for part in ("--set", change)]
    options = ["--seeds", "1", "--keep-logs", *(["--retrain"] if retrain else [])]
    over = ("--over", "cascade.pre_ranking.size=15,6")
    assert sweep(tmp_path / "out", *changes, *options, over=over) == 0
    files = sorted((tmp_path / "out" / "cells").rglob("mine.safetensors"))
    contents = [file.read_bytes() for file in files]
    assert (contents[0] == contents[1]) is not retrain
    # As first deployed, on random traffic that all cells share, and for good.
    assert len(trained) == (3 if retrain else 2)
    assert all((file.parents[1] / "logs" / "evaluate-now").is_dir() for file in files)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arm", "nwo"), "--arm: 'nwo' 'now'?"),
        (("--x", "expected_crt"), "'expected_crt' 'expected_ctr'?"),
        (("--y", "cpc"), "'cpc' end"),
        (("--y", "market.revenue"), "'market.revenue'"),
        (("--over", "auction.squash=1"), "auction.squash 'squashing'?"),
        (("--retrain", "--fixed-models"), "--retrain and --fixed-models"),
        (("--fixed-models", "--over", "world.users=300"), "world.users=300 world"),
        (
            ("--fixed-models", "--arm", "other", "--set", "arms.other.auction={reserve_cpc: 0.2}"),
            "other auction.reserve_cpc=0",
        ),
    ],
)
def test_a_mistake_is_refused_before_any_work(tmp_path, capsys, options, said):
    assert sweep(tmp_path / "out", *options) == 2
    assert tells(capsys.readouterr().err, *said.split())
    assert not (tmp_path / "out").exists()
