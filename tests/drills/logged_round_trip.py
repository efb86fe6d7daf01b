"""A run's log, exported and imported again: is every page of every what-if the same, to the micro-unit?

    python tests/drills/logged_round_trip.py RUN [--requests 2000]

For each parameter that the log completeness allows: requests with the same ads in the same slots at the same
prices. Then the tables of two what-ifs: measures that rest on no click of a page that was not shown must be
the same numbers, and of the arm as deployed those of clicks too.
Exits with 1 if any differs.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

PARAMETERS = [
    ("auction.reserve_cpc=0",),
    ("auction.reserve_cpc={median}",),
    ("auction.reserve_cpc={high}",),
    ("auction.squashing=0.7",),
    ("auction.squashing=0",),
    ("auction.score_floor=0.01",),
    ("auction.pricing=first", "auction.squashing=1"),
    ("auction.pricing=vcg", "auction.squashing=1"),
    ("auction.pricing=soft_floor", "auction.soft_floor={median}", "auction.squashing=1"),
    ("cascade.slots=2",),
    ("cascade.pre_ranking.size={half}",),
    ("cascade.pre_ranking.size={double}",),
    ("cascade.pre_ranking.bid=opt",),
    ("cascade.pre_ranking.bid=none",),
    ("cascade.pre_ranking.model=constant",),
    ("cascade.pre_ranking.model=RANKER",),
    ("cascade.pre_ranking.fusion=flat", "fusions.flat={{pctr: 0.5, bid: 1}}"),
    ("cascade.ranking.bid=init",),
    ("cascade.ranking.model=PRE_RANKER",),
    ("cascade.ranking.fusion=flat", "fusions.flat={{pctr: 0.5, bid: 1}}"),
    ("auction.reserve_cpc={median}", "cascade.pre_ranking.size={double}", "cascade.slots=2"),
]
TABLES = ("auction.reserve_cpc={median},{high}", "cascade.pre_ranking.size={half},{double}")
# Measures of a what-if that rest on no click, and those of clicks that were logged where nothing is turned.
OF_PAGES = (
    "impressions_per_request",
    "fill_rate",
    "rcs",
    "single_objective_rcs",
    "proxy_ece",
    "proxy_pcoc",
)
OF_CLICKS = ("ctr", "cpc", "rpm", "revenue_per_request")


def seated(word: str, pre_ranker: str, ranker: str) -> str:
    """The words of a parameter with the names that these models have."""
    return word.replace("PRE_RANKER", pre_ranker).replace("RANKER", ranker)


def pages(sim, scenario, folder, words, n):
    """Win sets and prices with parameters changed."""
    from cascade_sim.counterfactual.whatif import _with_scenario
    from cascade_sim.diagnostics.reopen import evaluation_blocks
    from cascade_sim.scenario.overrides import apply_overrides, parse_points
    from cascade_sim.scenario.schema import resolved_arms

    base = scenario.report.baseline
    spec = resolved_arms(scenario)[base]
    changed = scenario
    if words:
        (point,) = parse_points(words, scenario, base)
        changed, spec = apply_overrides(scenario, spec, point, folder)
    arm = _with_scenario(sim, changed).arm(base, spec)
    parts = [(sim.serve(block, arm), count) for block, count in evaluation_blocks(sim, n)]
    return tuple(
        np.concatenate([getattr(decision, name)[:count] for decision, count in parts])
        for name in ("win_set", "cpc_micros")
    )


def tables_differ(run: Path, market: Path, question: str) -> int:
    """How many numbers differ between the what-if of the run and that of its log."""
    from cascade_sim.counterfactual.whatif import what_if_study

    first, second = (what_if_study(folder, [question]) for folder in (run, market))
    pairs = [
        (ours["metrics"][name]["value"], theirs["metrics"][name]["value"])
        for (ours, theirs), names in [
            ((first["current"], second["current"]), (*OF_PAGES, *OF_CLICKS)),
            *((points, OF_PAGES) for points in zip(first["points"], second["points"], strict=True)),
        ]
        for name in names
    ]
    # Users are added up in another order: a mean may differ in its last bit.
    same = sum(math.isclose(one, other, rel_tol=1e-12) for one, other in pairs)
    print(f"{same} of {len(pairs)} numbers of the table the same   {question}", flush=True)
    return len(pairs) - same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=0, help="0: all")
    given = parser.parse_args()
    from cascade_sim.diagnostics.reopen import reopen
    from cascade_sim.logs.export import export_logs
    from cascade_sim.logs.importing.market import import_market
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.scenario.schema import resolved_arms
    from cascade_sim.study.simulation import Simulation

    run = reopen(given.run)
    spec = resolved_arms(run.scenario)[run.scenario.report.baseline]
    run.load_models(spec)
    median = float(np.median(run.sim.world.init_bid))
    own = {
        "median": f"{median:.4f}",
        "high": f"{1.5 * median:.4f}",
        "half": max(spec.pre_ranking.size // 2, spec.slots + 1),
        "double": min(2 * spec.pre_ranking.size, spec.retrieval_size),
    }
    failed = 0
    with tempfile.TemporaryDirectory() as temp:
        export_logs(given.run, Path(temp) / "log")
        import_market(Path(temp) / "log" / "mapping.yaml", Path(temp) / "market")
        market = Path(temp) / "market"
        effects = ",".join(map(str, run.sim.world.slot_effects[: spec.slots].tolist()))
        scenario = load_scenario(market / "scenario.yaml", [f"world.replay.slot_effects=[{effects}]"])
        sim = Simulation(scenario, scenario.seed, home=market)
        store = sim.environment.replay.store
        code = np.array([*(int(name) for name in store.names("ads")), -1])  # the run's numbers; -1 stays
        n = min(given.requests or store.n_requests, store.n_requests)
        for words in [(), *PARAMETERS]:
            asked = [word.format(**own) for word in words]
            theirs = [seated(word, spec.pre_ranking.model, spec.ranking.model) for word in asked]
            ours = [seated(word, "logged_pre", "logged") for word in asked]
            ads, prices = pages(run.sim, run.scenario, given.run, theirs, n)
            found, paid = pages(sim, scenario, market, ours, n)
            same = (ads == code[found]).all(axis=1) & (prices == paid).all(axis=1)
            failed += int((~same).sum())
            print(
                f"{int(same.sum()):,} of {n:,} pages the same   {' '.join(asked) or 'as deployed'}",
                flush=True,
            )
        failed += sum(tables_differ(given.run, market, question.format(**own)) for question in TABLES)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
