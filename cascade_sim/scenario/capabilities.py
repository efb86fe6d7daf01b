"""What a kind of world can be asked for, and the words in which it refuses the rest.

Capabilities are of a scenario's world, not of the world made concrete: most questions are refused before
anything is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["synthetic", "replayed", "fitted"]
Capability: TypeAlias = Literal[
    "truth",  # the chance of every click
    "corpus",  # ads beyond each request's candidates
    "training",
    "fresh_requests",
    "seeds",  # several worlds that differ
    "market",
    "randomised_logs",
]

CORPUS = "a log has no ads beyond each request's candidates"
LACKS: Mapping[Kind, Mapping[Capability, str]] = {
    "synthetic": {},
    "fitted": {"corpus": CORPUS},
    "replayed": {
        "corpus": CORPUS,
        "truth": "a log has no ground truth",
        "training": "a replayed log has no features to learn from; log the scores of a model as score.NAME "
        "and use it as logged-NAME, or fit a world to the log (fit-world)",
        "fresh_requests": "a replayed log has no other requests than those that were logged",
        "seeds": "a replayed log is one world, and replays the same; leave it at 1",
        "market": "advertisers and budgets of a replayed log do not react; fit a world to the log "
        "(fit-world)",
        "randomised_logs": "nothing is randomised in a replay; ask `off-policy` of the market, which has "
        "what was logged",
    },
}
