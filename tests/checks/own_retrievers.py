"""Retrievers of a user, as the text of their file: one that is right, and planted mistakes."""

POPULAR = """
import numpy as np

from cascade_sim.cascade.retrievers.custom import best_ads


class Popular:
    def __init__(self, visible, taste=0.3):
        self.value = (visible.popularity + np.log(visible.init_bid)).astype(np.float32)
        self.users, self.ads = visible.user_features["G1"], visible.ad_features["G1"]
        self.taste = taste

    def score(self, requests, ids):
        affinity = np.einsum("rd,rmd->rm", self.users[requests.users], self.ads[ids])
        return self.value[ids] + self.taste * affinity

    def retrieve(self, requests, size, available):
        corpus = np.tile(np.arange(len(self.value)), (len(requests), 1))
        return best_ads(self.score(requests, corpus), size, available)
"""

# Each: the line of POPULAR that goes, what comes in its place, the check that must fail, what it must say.
CALL = "        return best_ads(self.score(requests, corpus), size, available)\n"
GIVEN = CALL.replace("return", "found =")
SAID = "        return self.value[ids] + self.taste * affinity\n"
MISTAKES = {
    "a list": (CALL, GIVEN + "        return found.tolist()\n", "retrieve", "found list"),
    "floats": (CALL, GIVEN + "        return found.astype(float)\n", "retrieve", "dtype float64"),
    "a row short": (CALL, GIVEN + "        return found[1:]\n", "retrieve", "shape"),
    "too many": (CALL, CALL.replace("size,", "size + 1,"), "retrieve", "n <= 40"),
    "no such ad": (CALL, GIVEN + "        return found + 290\n", "retrieve", "ids of the 300 ads"),
    "descending": (CALL, GIVEN + "        return found[:, ::-1].copy()\n", "retrieve", "ascending"),
    "twice": (
        CALL, GIVEN + "        found[:, 1] = found[:, 0]\n        return found\n", "retrieve", "each ad once"
    ),
    "padding first": (
        CALL, GIVEN + "        found[:, 0] = -1\n        return found\n", "retrieve", "-1 at the end"
    ),
    "none at all": (CALL, GIVEN + "        return found * 0 - 1\n", "retrieve", "at the end|found none"),
    "gone ads": (CALL, CALL.replace(", available", ""), "available", "is not"),
    "raises": (CALL, "        raise KeyError('G9')\n", "retrieve", "KeyError"),
    "scores of nan": (SAID, SAID.replace("self.taste", "np.nan"), "score", "finite"),
    "scores of one ad": (SAID, "        return affinity[:, :1]\n", "score", "shape"),
    "random": (SAID, SAID[:-1] + " + np.random.random(ids.shape)\n", "repeatable", "twice"),
    "looks at the others": (
        SAID, SAID[:-1] + " * (1 + requests.context.sum() * ids)\n", "by request", "in every batch"
    ),
    "writes": (SAID, "        requests.context[:] = 0\n" + SAID, "side effects", "requests.context"),
    "writes to the world": (
        "self.taste = taste\n", "visible.init_bid[0] = 9\n", "constructor", "read-only"
    ),
    "no option": ("taste=0.3", "other", "constructor", r"Popular\(visible, \*\*options\)"),
}  # fmt: skip


def mistaken(name):
    """The text with a mistake, the check that finds it, and what it says."""
    line, instead, check, words = MISTAKES[name]
    assert line in POPULAR
    return POPULAR.replace(line, instead), check, words
