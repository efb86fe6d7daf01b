"""The tiny study as a run folder, for the tests that reopen one."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from cascade_sim import SEMANTICS
from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import Platform
from cascade_sim.diagnostics.reopen import ReopenedRun
from cascade_sim.scenario.file import dump_scenario
from cascade_sim.storage.folder import json_text
from cascade_sim.storage.model_store import ModelStore
from worlds.tiny_market import Study

REQUEST = 200  # in the second block of 128


def as_run_folder(study: Study, path: Path) -> Path:
    """Its logs, models and scenario, as a finished run leaves them."""
    shutil.copytree(study.folder, path, dirs_exist_ok=True)
    scenario = study.sim.scenario
    for name in scenario.models:
        ModelStore(path).export(study.preparation.modules[name], path / "models" / f"{name}.safetensors")
    (path / "scenario.yaml").write_text(dump_scenario(scenario))
    manifest = {"semantics": SEMANTICS, "scenario_hash": "0", "status": "complete"}
    (path / "manifest.json").write_text(json_text(manifest))
    (path / "metrics.json").write_text(json_text({"arms": {}}))
    return path


def ads_by_fate(run: ReopenedRun, page: Any) -> dict[str | None, int]:
    """One ad for each way a request can treat it: dropped by a stage, or shown (None)."""
    request, _, decision = page
    retrieved, ranked, shown = (
        set(ids[request.row].tolist())
        for ids in (decision.retrieved, decision.competitive_set, decision.win_set)
    )
    corpus = set(range(run.sim.world.n_ads))
    return {
        "retrieval": min(corpus - retrieved),
        "pre_ranking": min(retrieved - ranked),
        "ranking": min(ranked - shown),
        None: int(decision.win_set[request.row, 0]),
    }


def with_bid(run: ReopenedRun, ad: int, micros: int) -> Platform:
    platform = run.sim.platform
    return replace(platform, bids=platform.bids.with_bid(ad, micros / MICROS))
