"""A run folder that somebody sent, with code in it that leaves a mark when it is imported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_hash
from cascade_sim.storage import checksums
from cascade_sim.storage.folder import json_text
from worlds.timed_market import MARKET, WORLD

MARK = "run.mark"
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.request_side = torch.nn.Linear(request_width, 4)
        self.ad_side = torch.nn.Linear(ad_width, 4)

    def forward(self, request, ads, pair):
        return (self.request_side(request).unsqueeze(1) * self.ad_side(ads)).sum(-1)
"""
BIDDER = """
from cascade_sim.agents.bidders.fixed import Fixed


class Own(Fixed):
    pass
"""
USERS = """
from cascade_sim.agents.click_models import PositionBased


class Users(PositionBased):
    pass
"""
CLASSES = {"net.py": NET, "own.py": BIDDER, "users.py": USERS}
NAMED = [
    *(
        f"models.{name}={{kind: 'net.py:Net', features: [user, quality, G1], epochs: 1}}"
        for name in ("pre", "rank")
    ),
    *("market.bidders={own: {kind: 'own.py:Own'}}", "market.users={click_model: 'users.py:Users'}"),
]
FEATURES = ["user", "quality", "G1"]
# A model in either stage, of a built-in kind until somebody names another; logs that off-policy reads.
SCENARIO: dict[str, Any] = {
    **WORLD,
    "cascade": {
        **WORLD["cascade"],  # type: ignore[dict-item]
        "pre_ranking": {"model": "pre", "size": 20},
        "ranking": {"model": "rank", "bid": "init"},
    },
    "models": {
        "pre": {"kind": "towers", "hidden": 8, "dims": 4, "features": FEATURES, "epochs": 1},
        "rank": {"kind": "coaction", "hidden": 8, "dims": 4, "features": FEATURES, "epochs": 1},
    },
    "arms": {"now": {}},
    "auction": {"reserve_cpc": 0.2},
    "market": {**MARKET, "days": 0.01},
    "off_policy": {"randomise": {"reserve_cpc": 0.3}, "requests": 128},
}


def marking(text: str, mark: Path) -> str:
    """The same code; importing it leaves a mark."""
    return f"from pathlib import Path\n\nPath({str(mark)!r}).write_text('run')\n{text}"


def sent(run: Path, to: Path, changes: list[str], files: dict[str, str], *, sealed: bool) -> Path:
    """A copy of a run whose scenario names other classes, with these files in it; sealed as if it were whole.

    Whoever sends a folder can seal what he wrote.
    """
    shutil.copytree(run, to)
    for name, text in files.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text)
    if changes:
        scenario = load_scenario(to / "scenario.yaml", changes)
        (to / "scenario.yaml").write_text(dump_scenario(scenario))
        _edit(to / "manifest.json", scenario_hash=scenario_hash(scenario))
    if sealed:
        seal_again(to)
    return to


def seal_again(run: Path) -> Path:
    """As somebody who knows how would do it after an edit."""
    _edit(run / "manifest.json", **{checksums.SEALS: checksums.checksums_of(run)})
    return run


def _edit(manifest: Path, **changes: Any) -> None:
    content = {**json.loads(manifest.read_text()), **changes}
    manifest.write_text(json_text(checksums.with_checksum(content)))
