"""import-logs and export-logs from the command line: what they print, how they refuse, and that they tidy
up.
"""

import resource
import subprocess
import sys

import pytest

from answers.told import refused, tells
from cascade_sim.cli import main
from cascade_sim.logs.store import open_store
from places import ROOT
from worlds.small_log import small_log
from worlds.whatif_runs import measured_run

HANG = 600
SMALL = 20_000  # bytes of a file that a nearly full disk takes


def test_an_import_prints_what_the_log_can_say(tmp_path, capsys):
    mapping = small_log().write(tmp_path / "log")
    assert main(["import-logs", str(mapping), "--out", str(tmp_path / "market"), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert tells(printed, "tuesday:", "8 requests", "40 candidates", "16 shown")
    assert tells(printed, "log completeness: bids")
    assert tells(printed, "to extend:", "pre-ranking set")
    assert open_store(tmp_path / "market").n_requests == 8


def test_a_refused_log_ends_with_code_2_and_all_kinds(tmp_path, capsys):
    log = small_log()
    log.bids[0]["bid"] = -1
    log.shown[4]["clicked"] = 7
    mapping = log.write(tmp_path / "log")
    assert main(["import-logs", str(mapping), "--out", str(tmp_path / "market"), "--quiet"]) == 2
    printed = capsys.readouterr().err
    assert "nothing was written" in printed
    assert "bids.csv row 2, column bid: '-1'" in printed
    assert "shown.csv row 6, column clicked: '7'" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_format_takes_files_in_place_of_a_mapping(tmp_path, capsys):
    (tmp_path / "all.csv").write_text(
        "timestamp,item_id,position,click,propensity_score\n2019-11-24 00:00:12+00:00,41,1,0,0.0125\n"
    )
    out = ["--out", str(tmp_path / "market"), "--quiet"]
    assert main(["import-logs", "--format", "open-bandit", str(tmp_path / "all.csv"), *out]) == 0
    assert tells(capsys.readouterr().out, "off-policy estimates")
    assert main(["import-logs", "--format", "open-bandits", str(tmp_path / "all.csv"), *out]) == 2
    assert tells(capsys.readouterr().err, "'open-bandit'?")
    assert main(["import-logs", "a.yaml", "b.yaml", *out]) == 2


def test_a_run_goes_out_and_comes_in_again(study, tmp_path, capsys):
    run = measured_run(study, tmp_path / "run")
    assert main(["export-logs", str(run), "--out", str(tmp_path / "logs"), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert tells(printed, "500 requests", "30,000 candidates", "the run logged")
    words = [
        "import-logs",
        str(tmp_path / "logs" / "mapping.yaml"),
        "--out",
        str(tmp_path / "market"),
        "--quiet",
    ]
    assert main(words) == 0
    assert "log completeness: pre_ranking" in capsys.readouterr().out
    assert main(["export-logs", str(run), "--out", str(tmp_path / "logs"), "--quiet"]) == 2


@pytest.mark.parametrize("requests", [400])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, requests):
    mapping = small_log(requests, per_request=12).write(tmp_path / "log")
    words = ["import-logs", str(mapping), "--out", str(tmp_path / "market"), "--quiet"]

    def nearly_full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "cascade_sim", *words],  # -B: Python would keep compiled files cut short
        cwd=ROOT, capture_output=True, text=True, preexec_fn=nearly_full, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_python_makes_a_market_and_asks_it(tmp_path, capsys):
    from cascade_sim import audit_logs, import_logs, whatif

    mapping = small_log().write(tmp_path / "log")
    market = import_logs(mapping, tmp_path / "market")
    assert capsys.readouterr() == ("", "")
    assert market.level == "bids" and tells(market, "tuesday:", "8 requests", "40 candidates", "16 shown")
    assert market.frame().set_index("what").loc["candidates"].tolist() == [40, 0]
    assert market.validation["faults"] == []
    assert audit_logs(market).tally()["share"].tolist() == [1.0, 1.0, 1.0]
    assert len(whatif(market, slots=1).frame())
    with refused("2 files", "--format"):
        import_logs([mapping, mapping], tmp_path / "other")
    with refused("'open-rtb'?"):
        import_logs(mapping, tmp_path / "other", format="openrtb")


def test_what_a_rule_leaves_open_is_replayed_as_the_log_has_it(tmp_path):
    """Rounding without its way was replayed to the nearest; a soft floor without its value not at all."""
    from cascade_sim import import_logs, load_scenario

    log = small_log(40)
    bids = {(row["id"], row["creative"]): round(row["bid"] * 1e6) for row in log.bids}
    for row in log.shown:
        up = -(-row["cost"] // 10_000) * 10_000
        row["cost"] = min(up, bids[row["id"], row["creative"]])
    log.mapping = log.mapping.replace("squashing: 1", "squashing: 1, rounding: 0.01")
    import_logs(log.write(tmp_path / "log"), tmp_path / "market")
    auction = load_scenario(tmp_path / "market" / "scenario.yaml").auction
    assert (auction.rounding, auction.rounding_how) == (0.01, "up")

    log.mapping = log.mapping.replace("gsp", "soft_floor")
    import_logs(log.write(tmp_path / "soft"), tmp_path / "other")
    found = load_scenario(tmp_path / "other" / "scenario.yaml").auction
    assert found.pricing == "soft_floor" and found.parameters["soft_floor"] >= 0


def test_a_reserve_that_is_set_takes_the_place_of_each_requests_own(tmp_path):
    """It was set and not looked at: a sweep over reserves had one number for all of them."""
    from cascade_sim import import_logs, load_scenario

    log = small_log()
    for i, row in enumerate(log.requests):
        row["floor"] = 0.01 * (i % 2)
    log.mapping = log.mapping.replace("slots: places", "slots: places, reserve: floor")
    import_logs(log.write(tmp_path / "log"), tmp_path / "market")
    scenario = tmp_path / "market" / "scenario.yaml"
    assert load_scenario(scenario).auction.logged_reserves
    assert load_scenario(scenario, set=["auction.squashing=0.9"]).auction.logged_reserves
    assert not load_scenario(scenario, set=["auction.reserve_cpc=0.3"]).auction.logged_reserves
    kept = ["auction.reserve_cpc=0.3", "auction.logged_reserves=true"]
    assert load_scenario(scenario, set=kept).auction.logged_reserves


def test_python_takes_a_run_out_and_in_again(study, tmp_path):
    from cascade_sim import export_logs, import_logs

    logs = export_logs(measured_run(study, tmp_path / "run"), tmp_path / "logs")
    assert logs.frame()["rows"].tolist() == [500, 30_000, 1_500]
    assert tells(logs, "the run logged") and logs.mapping.is_file()
    market = import_logs(logs, tmp_path / "market")
    assert market.level == "pre_ranking" and market.validation["notes"] == []
