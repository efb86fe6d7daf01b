"""The evaluation of a finished run once more: its requests in the blocks they came in, and what was logged.

Blocks are whole, because what a net predicts may differ in the last bit with the requests beside it.
Times are not the logged ones; serving does not look at them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cascade_sim.cascade.serve import Block
from cascade_sim.phases.simulation import Simulation
from cascade_sim.phases.traffic import Market
from cascade_sim.storage.tables import iterate_table, read_table, tables

PHASE = "evaluate"


def evaluation_blocks(sim: Simulation, n_requests: int) -> Iterator[tuple[Block, int]]:
    """The blocks that hold the first n requests of the evaluation, and how many of each block are meant."""
    total = sim.scenario.phases.evaluate
    left = min(n_requests, total)
    index = 0
    while left > 0:
        block = sim.market.block(PHASE, index, total)
        yield block, min(len(block), left)
        left -= len(block)
        index += 1


def logged(folder: Path, arm: str, n_requests: int, columns: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Columns of the impressions that an arm's first n requests left in the log; None if the log is gone."""
    name = f"{PHASE}-{arm}"
    if name not in tables(folder):
        return None
    end = Market.first_request(PHASE) + n_requests
    parts = []
    for rows in iterate_table(folder, name, [*columns, "request"]):
        parts.append({column: rows[column][rows["request"] < end] for column in columns})
        if len(rows["request"]) and rows["request"][-1] >= end:
            break
    if not parts:  # the arm showed nothing at all: a table without a row comes in no batch
        return read_table(folder, name, columns)
    return {column: np.concatenate([part[column] for part in parts]) for column in columns}
