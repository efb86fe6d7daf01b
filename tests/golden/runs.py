"""Golden runs: small studies whose every figure is kept in tests/golden, so that no result changes unnoticed.

Exact on the stack and machine that wrote the files. Elsewhere the last digits of sums may differ: runs
without training are then compared to 1e-9, trained ones to TRAINED, since a net that starts to differ in its
last digit ends with other weights (test_golden.py says what was measured).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from places import GOLDEN as FOLDER
from places import ROOT

FORMAT = 1
UNTRAINED, TRAINED = 1e-9, 0.02
PORTABLE = (
    "expected_ctr",
    "expected_rpm",
    "expected_revenue_per_request",
    "rcs",
    "welfare_vs_oracle",
)  # of trained runs
DEPTH = 3  # of the nodes of metrics.json that have a digest each; a new node is no change of results
DEEPER = {"what_if": 6}  # down to the metrics of each point

NO_TRAINING = (
    *("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=random"),
    *("phases.cold_start=0", "phases.log=0", "phases.shadow=0"),
    *("report.resamples=20", "report.detail_requests=32"),
)
# Name -> (scenario, overrides, whether anything is trained).
RUNS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "quick": ("quick.yaml", (), True),
    "objectives": (
        "calibrated_rankers.yaml",
        (
            *("world.users=200", "world.ads=800", "world.advertisers=80", "world.base_logit=-3.6"),
            *("cascade.retrieval.size=60", "cascade.pre_ranking.size=15", "traffic.block=128"),
            *("phases.cold_start=600", "phases.log=800", "phases.evaluate=256", "phases.shadow=0"),
            *("report.resamples=20", "report.detail_requests=32"),
            "arms={deployed: {}, softmax-platt: {ranking: {model: softmax-platt}}, "
            "jrc: {ranking: {model: jrc}}, sbcr: {ranking: {model: sbcr}}}",
        ),
        True,
    ),
    "pricing": (
        "pricing_rules.yaml",
        (*NO_TRAINING, "phases.evaluate=256", "market.requests_per_second=0.01", "market.window=1800"),
        False,
    ),
    "market": (
        "market_day.yaml",
        (
            *NO_TRAINING,
            *("arms={logloss: {}, wide: {pre_ranking: {size: 80}}}", "phases.evaluate=128"),
            *("market.requests_per_second=0.03", "market.window=900", "market.update=1800"),
            "market.budgets={share: 1.0, median: 0.8, sigma: 0.8}",
        ),
        False,
    ),
    "what_if": (
        "whatif_reserve.yaml",
        (*NO_TRAINING, "phases.evaluate=256", "what_if={reserve: ['auction.reserve_cpc=0.44,0.8']}"),
        False,
    ),
    "off_policy": (
        "off_policy.yaml",
        (
            *NO_TRAINING,
            *("phases.evaluate=64", "off_policy.requests=512", "off_policy.slates.requests=512"),
            "off_policy.targets={cheaper: [auction.reserve_cpc=0.63], colder: [slates.temperature=0.5]}",
        ),
        False,
    ),
    "off_policy_kept": (
        "off_policy.yaml",
        (
            *NO_TRAINING,
            *(
                "phases.evaluate=64",
                "off_policy.requests=512",
                "off_policy.slates=null",
                "off_policy.estimand=jittered",
            ),
            "off_policy.targets={cheaper: [auction.reserve_cpc=0.63]}",
        ),
        False,
    ),
    "designs": (
        "interference.yaml",
        (
            *NO_TRAINING,
            *("arms={logloss: {}, ranker-first: {auction: {reserve_cpc: 0.2}}}", "phases.evaluate=64"),
            *(
                "market.days=3",
                "market.requests_per_second=0.004",
                "market.window=3600",
                "market.update=7200",
            ),
            "market.budgets={share: 1.0, median: 0.8, sigma: 0.8}",
        ),
        False,
    ),
}


def stack() -> dict[str, str]:
    """What the last digits depend on: packages, processor and the instructions that are used of it."""
    from cascade_sim.storage.environment import packages, processor

    here, versions = processor(), packages()
    return {
        **{name: versions[name] for name in ("python", "numpy", "scipy", "torch", "numba")},
        "machine": here["machine"],
        "processor": here["numba"],
        "instructions": here["torch"],
        "numpy_instructions": here["numpy"],
    }


def run_golden(name: str) -> dict[str, Any]:
    """Run one study now; the content its file would have."""
    from cascade_sim import SEMANTICS
    from cascade_sim.context import scratch_context
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.storage.folder import json_text
    from cascade_sim.study.run import run_seed

    file, overrides, is_trained = RUNS[name]
    back = os.getcwd()
    os.chdir(ROOT)  # a scenario names its files from here
    try:
        with scratch_context(home=ROOT / "scenarios", device="cpu") as context:
            found = run_seed(load_scenario(Path("scenarios") / file, overrides), context)
    finally:
        os.chdir(back)
    metrics = json.loads(json_text(found))
    return {
        "format": FORMAT,
        "semantics": SEMANTICS,
        "scenario": file,
        "overrides": list(overrides),
        "is_trained": is_trained,
        "stack": stack(),
        "values": dict(values(metrics)),
        "digests": {path: digest(node) for path, node in nodes(metrics)},
    }


def values(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The figures that are compared on another machine: each metric of each arm, and the market's totals."""
    for arm, row in metrics["arms"].items():
        for metric, one in row.items():
            if one["value"] is not None:
                yield f"arms/{arm}/{metric}", one["value"]
    for arm, row in metrics.get("market", {}).get("arms", {}).items():
        for key, one in row.items():
            if isinstance(one, int | float) and not isinstance(one, bool):
                yield f"market/{arm}/{key}", one


def nodes(content: Any, path: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Nodes of metrics.json at DEPTH (or DEEPER), or leaves above it; the version is no result."""
    if isinstance(content, list) and depth and path.split("/")[0] in DEEPER:
        content = {str(number): entry for number, entry in enumerate(content)}
    if isinstance(content, dict) and depth:
        for key in sorted(content):
            inner = f"{path}/{key}" if path else key
            if inner != "version":
                yield from nodes(content[key], inner, DEEPER.get(inner, depth) - 1)
    else:
        yield path, content


def digest(node: Any) -> str:
    return hashlib.sha256(json.dumps(node, sort_keys=True).encode()).hexdigest()[:12]


def read_golden(name: str) -> dict[str, Any] | None:
    """The kept file, or None."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def changes(kept: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs, in words; empty if the results are the same as far as this machine can tell."""
    if kept["stack"] == now["stack"]:
        return [
            f"{path} {'is gone' if path not in now['digests'] else 'differs'}"
            + (f": {kept['values'][path]!r} -> {now['values'].get(path)!r}" if path in kept["values"] else "")
            for path, was in kept["digests"].items()
            if now["digests"].get(path) != was
        ]
    is_trained = kept.get("is_trained", False)  # a chain of answers has digests alone
    tolerance = TRAINED if is_trained else UNTRAINED
    return [
        f"{path} differs by more than {tolerance:g}: {was!r} -> {now['values'].get(path)!r}"
        for path, was in kept["values"].items()
        if (not is_trained or path.rpartition("/")[2] in PORTABLE)
        and not math.isclose(was, now["values"].get(path, math.inf), rel_tol=tolerance, abs_tol=1e-12)
    ]
