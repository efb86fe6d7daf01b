"""Scenarios of the size of other simulators' auctions, and those simulators run beside us.

    auction-gym   2 of 6 bidders, 1 slot: amzn/auction-gym, config/SP_Oracle.json
    auction-net   48 bidders, 3 slots: alimama-tech/AuctionNet, its environment (BiddingEnv)

Ours is a whole scenario: requests arrive one by one in simulated time, candidates are retrieved, a model
predicts pCTR, `serve` decides, clicks and conversions are drawn, clicks are charged, and every impression
and every request is written to the log on disk.

How to get the others and run all in turn, in the same minutes:

    git clone https://github.com/amzn/auction-gym
    git clone https://github.com/alimama-tech/AuctionNet
    python -m venv peers
    peers/bin/pip install numpy pandas torch scipy scikit-learn matplotlib seaborn tqdm gin-config numba
    python -m cascade_sim bench peers --auction-gym auction-gym --auction-net AuctionNet \\
        --peer-python peers/bin/python

`beside` is what runs in that other Python, and says what it changes of theirs for today's libraries.
"""

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cascade_sim.bench import Spread, in_turn, peer_process
from cascade_sim.bench.end_to_end import ready, serving, unlogged
from cascade_sim.foundation.errors import UserError

SEEN = ["user", "context", "quality", "tier", "G1", "G2"]


@dataclass(frozen=True)
class Mode:
    """So many bidders of all meet for so many slots."""

    bidders: int
    of: int
    slots: int

    @property
    def name(self) -> str:
        who = f"{self.bidders} of {self.of}" if self.bidders < self.of else str(self.of)
        return f"{who} bidders, {self.slots} slot{'s' * (self.slots > 1)}"

    def scenario(self) -> dict[str, Any]:
        """An ad of each advertiser, all that retrieval finds are ranked, and each bids its own bid."""
        return {
            "name": "peers",
            "world": {"users": 4000, "ads": self.of, "advertisers": self.of,
                      "slot_effects": [1.0, 0.8, 0.6][: self.slots]},
            "traffic": {"block": 16384},
            "cascade": {
                "retrieval": {"size": self.bidders},
                "pre_ranking": {"model": "constant", "bid": "init", "size": self.bidders},
                "ranking": {"model": "rank", "bid": "init"},
                "slots": self.slots,
            },
            "models": {"rank": {"kind": "towers", "features": SEEN, "dims": 8, "hidden": 16}},
            "arms": {"all": {}},
            "report": {"baseline": "all"},
        }  # fmt: skip


MODES = {"auction-gym": Mode(2, 6, 1), "auction-net": Mode(48, 48, 3)}


class Peer:
    """Another simulator in its own process and its own Python. It works only while it is asked."""

    def __init__(self, name: str, checkout: Path, python: Path):
        for path, what in ((checkout, "folder"), (python, "Python")):
            if not path.exists():
                raise UserError(f"--{name}: there is no {what} {path}; see `{HOW}`")
        self.name = name
        # Paths are made absolute but links stay: the `python` of an environment is one.
        command = [str(python.absolute()), peer_process.__file__, name, str(checkout.resolve())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ask()  # imports, first calls

    def ask(self, **what: Any) -> dict[str, Any]:
        """One round of work, timed by itself."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        try:
            stdin.write(json.dumps(what) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            said = stderr.read().strip().splitlines() or ["it said nothing"]
            raise UserError(f"{self.name} stopped in its own Python: {said[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def rate(self) -> float:
        """Bids per CPU-second of one round."""
        answer = self.ask()
        return float(answer["bids"]) / float(answer["seconds"])

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.wait()


HOW = "python -m pydoc cascade_sim.bench.peers"


def our_rate(mode: Mode, n_auctions: int, is_logged: bool = True) -> Callable[[], float]:
    """A call that gives bids per CPU-second of the scenario; compiled, and all users seen before.

    A request for each auction of two bidders; large auctions are fewer, for about the same time.
    `is_logged` False: what the log would get is made, and not written.
    """
    n_requests = n_auctions if mode.bidders == 2 else n_auctions // 4
    sim, arm = ready(mode.scenario())
    serving(sim, arm, sim.scenario.traffic.block, rate=0.0)
    if not is_logged:
        return lambda: n_requests * mode.bidders / unlogged(sim, arm, n_requests)
    return lambda: n_requests * mode.bidders / serving(sim, arm, n_requests, rate=0.0)


def scenario_rates(n_auctions: int = 1 << 18, repeats: int = 5) -> dict[str, Spread]:
    """Bids per CPU-second of whole scenarios, by mode."""
    return in_turn({mode.name: our_rate(mode, n_auctions) for mode in MODES.values()}, repeats)


def bench_peers(
    checkouts: dict[str, Path], python: Path, n_auctions: int = 1 << 18, repeats: int = 7
) -> list[dict[str, Any]]:
    """A row per mode: ours, theirs where a checkout is given, and how many times theirs ours is.

    All take turns; the ratio is of the medians.
    """
    with ExitStack() as stack:
        calls: dict[str, Callable[[], float]] = {}
        for name, mode in MODES.items():
            calls[f"ours {name}"] = our_rate(mode, n_auctions)
            calls[f"unlogged {name}"] = our_rate(mode, n_auctions, is_logged=False)
            if name in checkouts:
                calls[name] = stack.enter_context(Peer(name, checkouts[name], python)).rate
        found = in_turn(calls, repeats)
    rows = []
    for name, mode in MODES.items():
        ours, theirs = found[f"ours {name}"], found.get(name)
        times = None if theirs is None else ours.median / theirs.median
        rates = {"ours": ours, "unlogged": found[f"unlogged {name}"], "theirs": theirs}
        rows.append({"peer": name, "mode": mode.name, **rates, "times": times})
    return rows


def peers_text(rows: list[dict[str, Any]]) -> str:
    """The figures as lines for a terminal."""
    lines = ["bids per CPU-second of whole scenarios (arrivals, serve, draws, charges, log on disk)"]
    for row in rows:
        lines.append(f"  {row['mode']}")
        lines.append(f"    ours               {row['ours'].text(0)}")
        lines.append(f"    ours, no log       {row['unlogged'].text(0)}")
        if row["theirs"] is None:
            lines.append(f"    {row['peer']:<18} not given; how to get it: {HOW}")
        else:
            lines.append(f"    {row['peer']:<18} {row['theirs'].text(0)}")
            without = row["unlogged"].median / row["theirs"].median
            lines.append(f"    ours / theirs      {row['times']:.1f} x; without our log {without:.1f} x")
    return "\n".join(lines)
