"""Errors while a block of requests is served: which block it was, and whether to try it again."""

import gc
from collections.abc import Callable
from typing import TypeVar

from cascade_sim.cascade.serve import Block
from cascade_sim.errors import UserError

TRIES = 3
PASSING = (MemoryError, OSError)  # what the machine lacks now it may have in a moment

Result = TypeVar("Result")


class BlockError(RuntimeError):
    """A defect that shows with one block; its cause has the traceback."""


def serve_block(phase: str, block: Block, serve: Callable[[Block], Result]) -> Result:
    """serve(block), which must be pure. An error names the phase and the requests of the block.

    Want of memory and errors of the system are given three tries; if they stay, or if anything else goes
    wrong, the block is named. A UserError says itself what is wrong and passes as it is.
    """
    for left in reversed(range(TRIES)):
        try:
            return serve(block)
        except UserError:
            raise
        except PASSING as error:
            if not left:
                raise UserError(f"{where(phase, block)} failed {TRIES} times: {_words(error)}") from error
            gc.collect()  # what an earlier attempt holds in cycles
        except Exception as error:
            raise BlockError(f"{where(phase, block)}: {_words(error)}") from error
    raise AssertionError("every try returns or raises")


def where(phase: str, block: Block) -> str:
    """`phase log, requests 2000000256 to 2000000511`."""
    ids = block.requests
    return f"phase {phase}, requests {ids[0]} to {ids[-1]}" if len(ids) else f"phase {phase}, no requests"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
