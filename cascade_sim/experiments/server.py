"""Two arms on one market: each request is ranked and priced by its own arm, all are settled on one ledger.

The requests of a block are parted by assignment, each part is ranked by its arm as if it were alone, and the
lists come together in request order. Pages are listed arm by arm for the same budgets, each with its own
slots, pricing and reserves; money is taken in request order, so neither arm goes before the other.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim.cascade.ledger import Ledger
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.experiments.assignment import Assignment
from cascade_sim.market.ad_server import MarketServer
from cascade_sim.market.settlement import ListedPages, RankedLists
from cascade_sim.market.visits import Audience
from cascade_sim.scenario.market import Market
from cascade_sim.study.simulation import Simulation

ARMS = ("control", "treatment")
# What fills a list up to the width of the other arm's; else 0.
EMPTY = {"ads": -1, "entrants": -1, "raw_score": np.nan}
FIELDS = tuple(RankedLists.__dataclass_fields__)


@dataclass(frozen=True)
class MixedLists(RankedLists):
    """The lists of both arms in request order, filled up to one width; `parts` has them as they were.

    A list that was filled up does not show where it was cut, so pages are listed from the parts.
    """

    parts: tuple[tuple[np.ndarray, RankedLists], ...] = ()  # of each arm: its rows, ascending, and its lists

    def take(self, rows) -> RankedLists:
        return RankedLists(**{name: getattr(self, name) for name in FIELDS}).take(rows)


def mixed(parts: Sequence[tuple[np.ndarray, RankedLists]]) -> MixedLists:
    """The lists of several arms as one.  parts: rows [r] of the block and lists [r, D of the arm]"""
    n = sum(len(rows) for rows, _ in parts)
    columns: dict[str, Any] = {}
    for name in FIELDS:
        pieces = [(rows, getattr(lists, name)) for rows, lists in parts]
        if pieces[0][1] is None:
            columns[name] = None
            continue
        shape = (n, *(max(sizes) for sizes in zip(*(values.shape[1:] for _, values in pieces), strict=True)))
        columns[name] = np.full(shape, EMPTY.get(name, 0), pieces[0][1].dtype)
        for rows, values in pieces:
            place: Any = (rows, *(slice(size) for size in values.shape[1:]))
            columns[name][place] = values
    return MixedLists(**columns, parts=tuple(parts))


class SplitServer(MarketServer):
    """Serves each request with the arm that its assignment names."""

    def __init__(
        self,
        sim: Simulation,
        arms: Mapping[str, tuple[Arm, Market]],
        assignment: Assignment,
        audience: Audience,
        ledger: Ledger,
    ):
        """arms: of "control" and "treatment" the arm and the market as it sees it (its exploration)."""
        super().__init__(sim, *arms["control"], audience, ledger)
        self.assignment = assignment
        self.servers = tuple(MarketServer(sim, *arms[name], audience, ledger) for name in ARMS)
        self.compute = _Both(self.servers)  # type: ignore[assignment]
        self.routes = tuple(dict.fromkeys(name for server in self.servers for name in server.routes))
        for server in self.servers:
            server.routes = self.routes

    def set_bids(self, bids: np.ndarray, participation: np.ndarray) -> None:
        for server in self.servers:
            server.set_bids(bids, participation)

    def begin_window(self, blocks: list[Block], pool: ThreadPoolExecutor | None) -> list[np.ndarray | None]:
        for i, server in enumerate(self.servers):
            own = [block.take(self._rows(block, i)) for block in blocks]
            server.begin_window([block for block in own if len(block)], pool)
        return [None] * len(blocks)

    def rank(self, block: Block, depth: int, served_by_stage: np.ndarray | None = None) -> MixedLists:
        """Each arm ranks its own requests, as deep as it does alone, or down to its end if `depth` is 0."""
        rows = [self._rows(block, i) for i in range(len(self.servers))]
        ranked: list[RankedLists | None] = [None] * len(rows)
        for i, server in enumerate(self.servers):
            if len(rows[i]):
                own_depth = server.list_depth if depth else server.arm.most_auctioned
                ranked[i] = server.rank(block.take(rows[i]), own_depth)
        nothing = next(lists for lists in ranked if lists is not None).take(slice(0))
        return mixed([(own, lists or nothing) for own, lists in zip(rows, ranked, strict=True)])

    def _rank_deeper(self, block: Block, lists: RankedLists) -> MixedLists:
        return self.rank(block, 0)

    def list_pages(self, lists: RankedLists, start: int) -> tuple[ListedPages, int]:
        assert isinstance(lists, MixedLists)
        shape = (len(lists.ads), len(self._effects))
        pages = ListedPages(np.full(shape, -1, np.int64), np.zeros(shape, np.int64))
        stop = len(lists.ads)
        for server, (rows, own) in zip(self.servers, lists.parts, strict=True):
            first = int(np.searchsorted(rows, start))
            if first == len(rows):
                continue
            own_pages, listed = server.list_pages(own, first)
            slots = slice(own_pages.column.shape[1])
            pages.column[rows, slots], pages.cpc_micros[rows, slots] = own_pages.column, own_pages.cpc_micros
            if listed < len(rows):
                stop = min(stop, int(rows[listed]))
        return pages, stop

    @property
    def dumps(self) -> bool:
        return any(server.dumps for server in self.servers)

    def _rows(self, block: Block, arm: int) -> np.ndarray:
        return np.nonzero(self.assignment.is_treated(block) == bool(arm))[0]

    @property
    def _effects(self) -> np.ndarray:
        return self.sim.platform.slot_effects[: max(server.arm.slots for server in self.servers)]


class _Both:
    """What both arms keep about sizes; there are no servers with queues on trial."""

    def __init__(self, servers: Sequence[MarketServer]):
        self._servers = servers

    def metrics(self, revenue: float) -> None:
        return None

    def state(self) -> dict[str, Any]:
        return {name: server.compute.state() for name, server in zip(ARMS, self._servers, strict=True)}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, server in zip(ARMS, self._servers, strict=True):
            server.compute.restore(state.get(name, {}))
