"""AuctionNet's own environment beside this one: its log, imported, against a replay of it.

    python tests/oracles/auction_net.py CHECKOUT [--opportunities 20000] [--ticks 48]

CHECKOUT is a folder with github.com/alimama-tech/AuctionNet; nothing of it is kept here. Its environment, its
traffic and its run loop make a period with 48 PID bidders and budgets in proportion; the log that it writes
is imported by --format auction-net. Compared: revenue an opportunity, exposed and won slots, pages and prices
replayed, what each advertiser spends. Exits with 1 if the replay is another than the log.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

WHOLE = 500_000  # opportunities of a period, which AuctionNet's budgets are for
RESERVE, MIN_LEFT = 0.0001, 0.1  # of config/test.gin
MIN_PAGES = 0.98
NEAR = 0.005  # of revenue and exposures


def made_log(checkout: Path, place: Path, opportunities: int, ticks: int) -> Path:
    """The log of a period that AuctionNet's own code ran."""
    stands_in("gin", configurable=lambda thing=None, **_: thing if thing is not None else (lambda one: one))
    stands_in("psutil")
    stands_in("func_timeout", func_set_timeout=lambda timeout: lambda one: one, FunctionTimedOut=TimeoutError)
    stands_in("simul_bidding_env.Controller.Controller", Controller=None)  # its other bidders need more
    collections.Iterable = collections.abc.Iterable  # type: ignore[attr-defined]
    sys.path.insert(0, str(checkout))
    os.chdir(place)
    import run.run_test as loop
    from simul_bidding_env.Environment.BiddingEnv import BiddingEnv
    from simul_bidding_env.PvGenerator.NeurIPSPvGen import NeurIPSPvGen
    from simul_bidding_env.strategy.pid_bidding_strategy import PidBiddingStrategy

    class Controller:
        """48 bidders that AuctionNet has, with budgets between its lowest and highest."""

        def __init__(self, player_index: int, player_agent: Any):
            self.biddingEnv = BiddingEnv(reserve_pv_price=RESERVE, min_remaining_budget=MIN_LEFT)
            self.pvGenerator = NeurIPSPvGen(num_tick=48, pv_num=opportunities)
            self.agents = []
            for i in range(48):
                budget = (2000 + 60 * i) * opportunities / WHOLE
                agent = PidBiddingStrategy(budget=budget, cpa=60 + 10 * (i % 8), category=i // 8)
                agent.base_action = 60 + 10 * (i % 8)
                agent.reset()
                self.agents.append(agent)

        def reset(self, episode: int) -> None:
            self.biddingEnv.reset(episode=episode)

    loop.Controller = Controller
    loop.run_test(generate_log=True, num_episode=1, num_tick=ticks)
    return place / "data" / "log" / "0.csv"


def stands_in(name: str, **values: Any) -> None:
    """A module that AuctionNet imports and this run does not need."""
    module = types.ModuleType(name)
    vars(module).update(values)
    sys.modules.setdefault(name, module)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=Path, nargs="?", help="Without it nothing is compared.")
    parser.add_argument("--opportunities", type=int, default=20_000)
    parser.add_argument("--ticks", type=int, default=48)
    parser.add_argument("--keep", type=Path, help="Keep the log and the market in this folder.")
    given = parser.parse_args(argv)
    if given.checkout is None:
        print("skipped: no checkout of AuctionNet was given")
        return 0
    checkout = given.checkout.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        place = (given.keep or Path(temporary)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        return compared(made_log(checkout, place, given.opportunities, given.ticks), place)


def compared(log: Path, place: Path) -> int:
    """Print log and replay side by side; 1 if they differ."""
    import numpy as np
    import pandas as pd

    from cascade_sim.api import audit_logs, import_logs, run

    rows = pd.read_csv(log)
    print(import_logs([log], place / "market", format="auction-net", quiet=True))
    tally = audit_logs(place / "market").answer["tally"]
    done = run(place / "market" / "scenario.yaml", out=place / "run", workers=1, quiet=True)
    (arm,) = done.metrics["arms"]
    shown = done.log(f"evaluate-{arm}")
    n = len(rows[["timeStepIndex", "pvIndex"]].drop_duplicates())
    rows["paid"] = rows["cost"] * rows["isExposed"]
    budget = rows.groupby("advertiserNumber")["budget"].first()
    spent = rows.groupby("advertiserNumber")["paid"].sum()
    charged = shown["charge_micros"].to_numpy() / 1e6
    seen = charged > 0
    own = pd.Series(charged).groupby(shown["ad"].to_numpy()).sum().reindex(range(len(budget)), fill_value=0.0)
    own.index = spent.index  # names of ads are numbers, so codes have their order
    pages = done.metrics["replay"]["replayed"]
    figures = {
        "opportunities with a winner": (
            len(rows.loc[rows["xi"] == 1, ["timeStepIndex", "pvIndex"]].drop_duplicates()),
            shown["request"].nunique(),
        ),
        "won slots an opportunity": (rows["xi"].sum() / n, len(shown) / n),
        "exposed slots an opportunity": (rows["isExposed"].sum() / n, seen.sum() / n),
        "revenue an opportunity": (rows["paid"].sum() / n, charged.sum() / n),
        "if each won slot were charged": (rows["cost"].sum() / n, shown["cpc_micros"].sum() / 1e6 / n),
        "advertisers over budget": ((spent > budget + 1e-3).sum(), (own > budget + 1e-3).sum()),
        "with less than the least left": (
            (budget - spent < MIN_LEFT).sum(), (budget - own < MIN_LEFT).sum()
        ),
        "largest difference in spend": (0.0, float(np.abs(own - spent).max())),
    }  # fmt: skip
    print(f"{'':<36}{'log':>12}{'replay':>12}")
    for name, (logged, replayed) in figures.items():
        print(f"{name:<36}{logged:>12.5g}{replayed:>12.5g}")
    print(f"pages as logged: audit {tally['pages_matched']:,} of {tally['requests']:,}, replay {pages}")
    faults = [
        name
        for name, (logged, replayed) in figures.items()
        if abs(replayed - logged) > NEAR * max(abs(logged), 0.01)
    ]
    faults += ["pages"] if pages["page_match_rate"] < MIN_PAGES else []
    for fault in faults:
        print(f"FAILED {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
