"""A study whose arms have different retrievers, run, asked and traced; every stage goes by the arm's own."""

import json
import shutil

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.cascade.retrievers.custom import CustomRetrieval, Requests, Visible
from cascade_sim.cascade.retrievers.routes import MergedRoutes
from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.live.controls import parameters_of
from cascade_sim.live.session import Session, Variant
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.tables import read_table
from cascade_sim.study.simulation import Simulation
from checks.own_retrievers import POPULAR, mistaken
from worlds.tiny_market import QUICK, TINY, tiny_scenario

POPULAR_ARM = "arms.popular={retrieval: {kind: 'popular.py:Popular', size: 60, options: {taste: 0.5}}}"
MERGED_ARM = (
    "arms.merged={retrieval: {routes: {near: {size: 40}, popular: {kind: 'popular.py:Popular', size: 20}}}}"
)
BUILT_IN_SCORERS = (
    *("models={}", "cascade.pre_ranking.model=random", "cascade.ranking.model=truth"),
    *(
        "arms={logloss: {}}",
        "phases.shadow=0",
        "phases.cold_start=200",
        "phases.log=300",
        "phases.evaluate=256",
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    (made / "popular.py").write_text(POPULAR)
    return made


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def run(folder):
    """A run of the command, without training: the truth ranks."""
    words = [w for text in (*TINY, *BUILT_IN_SCORERS, POPULAR_ARM, MERGED_ARM) for w in ("--set", text)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", str(QUICK), "--out", "run", "--quiet", *words]) == 0
    return folder / "run"


def made(*overrides):
    sim = Simulation(tiny_scenario(*BUILT_IN_SCORERS, POPULAR_ARM, MERGED_ARM, *overrides), 1)
    arms = {name: sim.arm(name, spec) for name, spec in resolved_arms(sim.scenario).items()}
    return sim, arms


def test_each_arm_serves_from_its_own_candidates_and_so_does_its_shadow():
    sim, arms = made("world.churn={available_share: 0.6, mean_lifetime_days: 0.02}")
    block = sim.arrivals.block("evaluate", 0, 256)
    sets = {}
    for name in ("logloss", "popular", "merged"):
        decision, ideal = (
            serve(block, arms[name], sim.platform),
            serve(block, shadow(arms[name]), sim.platform),
        )
        assert np.array_equal(decision.retrieved, ideal.retrieved)
        there = sim.platform.lives.is_available(decision.retrieved, block.times[:, None])
        assert there[decision.retrieved >= 0].all()
        sets[name] = decision.retrieved
    assert not np.array_equal(sets["logloss"], sets["popular"])
    own = arms["merged"].retrieval.retriever
    assert isinstance(own, MergedRoutes) and own.routes[0].retriever is arms["logloss"].retrieval.retriever
    assert ((sets["merged"] >= 0).sum(axis=1) <= 60).all()


def test_a_retriever_sees_neither_the_truth_nor_what_is_known_of_candidates():
    sim, _ = made()
    visible = Visible.of(sim.world)
    assert not {"seed", "truth", "lives", "activity"} & set(vars(visible))
    with pytest.raises(ValueError, match="read-only"):
        visible.ad_features["G1"][0] = 0
    block = sim.arrivals.block("evaluate", 0, 256)
    assert set(vars(Requests.of(block))) == {"ids", "users", "context", "times"}


@pytest.mark.parametrize("name", ["twice", "descending", "gone ads", "raises", "scores of nan"])
def test_an_answer_that_breaks_the_contract_ends_the_run_with_the_name_of_the_class(name, folder):
    text, _, words = mistaken(name)
    file = folder / "bad.py"
    file.write_text(text)
    sim = Simulation(
        tiny_scenario(*BUILT_IN_SCORERS, "world.churn={available_share: 0.6, mean_lifetime_days: 0.02}"), 1
    )
    own = sim.find_retriever("bad.py:Popular")
    bad = CustomRetrieval("bad.py:Popular", own, {}, sim.world)
    block = sim.arrivals.block("evaluate", 0, 256)
    with pytest.raises(UserError, match=rf"bad\.py:Popular.*({words})"):
        bad.score(block, bad.retrieve(block, 60, sim.platform.lives))


def test_the_run_compares_the_arms_and_keeps_the_code(run, folder):
    metrics = json.loads((run / "metrics.json").read_text())
    revenue = {name: metrics["arms"][name]["revenue_per_request"]["value"] for name in ("popular", "merged")}
    assert revenue["popular"] != revenue["merged"]
    assert (run / "models" / "retriever.0.py").read_text() == POPULAR
    stages = {row["stage"] for row in metrics["attribution"]["merged"]["stages"]}
    assert stages == {"retrieval", "pre_ranking", "ranking"}


def test_its_code_is_run_again_only_for_who_trusts_it(run, capsys):
    assert main(["trace", str(run), "--request", "3", "--arm", "popular"]) == 2
    assert tells(capsys.readouterr().err, "popular.py:Popular", "--trust")
    assert main(["trace", str(run), "--request", "3"]) == 0  # the baseline has none


@pytest.mark.parametrize("there", [None, "class Popular:\n    of = another time\n"])
def test_from_a_folder_without_its_file_a_run_takes_the_code_it_keeps(
    run, folder, tmp_path, monkeypatch, capsys, there
):
    words = ["trace", str(run), "--request", "3", "--arm", "merged", "--json"]
    assert main([*words, "--trust"]) == 0
    told = capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    if there is not None:
        (tmp_path / "popular.py").write_text(there)
    assert main([*words, "--trust"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(told)
    assert main(words) == 2 and "retriever.0.py" in capsys.readouterr().err  # trusted or not run


def test_without_the_kept_code_either_a_run_says_where_to_ask(run, tmp_path, monkeypatch, capsys):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "models" / "retriever.0.py").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "run", "--request", "0", "--trust"]) == 2
    assert "popular.py" in capsys.readouterr().err


def test_the_live_page_serves_and_changes_the_candidates_of_such_arms(run):
    with pytest.raises(UserError, match=r"retriever\.0\.py"):
        Session(run).arm(Variant("popular"))
    session = Session(run, trust=True)
    controls = {one["label"] for one in parameters_of(session, "merged")}
    assert {"Ads of near", "Ads of popular"} <= controls
    sets = {
        ways: serve(session.block(0), session.arm(Variant(*ways)), session.sim.platform).retrieved
        for ways in (
            ("merged",),
            ("merged", ("retrieval.routes.popular.size=0",)),
            ("popular",),
            ("popular", ("retrieval.options.taste=3.0",)),
        )
    }
    widths = [(ids >= 0).sum(axis=1).max() for ids in sets.values()]
    assert 40 < widths[0] <= 60 and widths[1:] == [40, 60, 60]
    asked, changed = list(sets.values())[2:]
    assert not np.array_equal(asked, changed)


def test_a_trace_says_which_routes_brought_an_ad(run, capsys):
    words = ["trace", str(run), "--request", "3", "--arm", "merged", "--trust", "--json"]
    assert main(words) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["same_as_log"] is True
    shown = page["win_set"][0]
    assert shown["brought_by"] and set(shown["brought_by"]) <= {"near", "popular"}
    assert main([*words, "--ad", str(shown["ad"])]) == 0
    retrieval = json.loads(capsys.readouterr().out)["ad"]["stages"][0]
    assert retrieval["passed"] and retrieval["brought_by"] == shown["brought_by"]
    assert retrieval["score"] >= retrieval["last_in"] > 0 >= retrieval["first_out"]
    assert main([*words[:-1], "--ad", str(shown["ad"])]) == 0
    assert f"Brought by {' and '.join(shown['brought_by'])}." in capsys.readouterr().out


def test_log_tables_say_which_routes_brought_an_ad(run, capsys):
    log = read_table(run, "evaluate-merged")
    brought = {name: log[f"route.{name}"] for name in ("near", "popular")}
    assert (
        all(0 < found.mean() < 1 for found in brought.values())
        and (brought["near"] | brought["popular"]).all()
    )
    assert main(["trace", str(run), "--request", "3", "--arm", "merged", "--trust", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    rows = np.flatnonzero(log["request"] == page["request"])
    for row, place in zip(rows, page["win_set"], strict=True):
        assert [name for name, found in brought.items() if found[row]] == place["brought_by"]
    for table in ("evaluate-popular", "evaluate-logloss", "log", "shadow"):  # of one retriever each
        assert not [name for name in read_table(run, table) if name.startswith("route.")]


def test_a_what_if_may_bring_another_retriever(run, capsys):
    """The baseline with the retriever of an arm is that arm, to the cent."""
    words = ["retrieval.kind=popular.py:Popular", "retrieval.options.taste=0.5"]
    asked = [w for text in words for w in ("--set", text)]
    assert main(["whatif", str(run), *asked, "--quiet", "--out", "asked"]) == 2
    assert "--trust" in capsys.readouterr().err
    assert main(["whatif", str(run), *asked, "--trust", "--quiet", "--out", "asked"]) == 0
    metrics = json.loads((run / "metrics.json").read_text())["arms"]["popular"]
    answer = json.dumps(json.loads((run.parent / "asked" / "whatif.json").read_text()))
    assert json.dumps(metrics["revenue_per_request"]["value"]) in answer


def test_an_export_has_the_candidates_of_the_arm(run, capsys):
    assert main(["export-logs", str(run), "--arm", "merged", "--out", "logs", "--trust"]) == 0
    assert tells(capsys.readouterr().out, "the run logged")
