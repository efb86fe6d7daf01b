"""The evaluation once more: whole blocks, and the part of the log that belongs to the first requests."""

import numpy as np

from cascade_sim.diagnostics.reopen import evaluation_blocks, logged
from cascade_sim.storage.tables import read_table


def test_blocks_are_whole_and_only_the_first_requests_are_meant(study):
    found = list(evaluation_blocks(study.sim, 200))
    assert [(len(block), n) for block, n in found] == [(128, 128), (128, 72)]
    assert [(len(block), n) for block, n in evaluation_blocks(study.sim, 10**6)][-1] == (500 - 3 * 128, 116)
    log = read_table(study.folder, "evaluate-logloss", ["request", "user", "context"])
    for block, _ in found:
        for name, own in (("user", block.users), ("context", block.context)):
            at = np.searchsorted(log["request"], block.requests)
            assert log[name][at].tolist() == own.tolist()


def test_the_log_of_the_first_requests(study):
    whole = read_table(study.folder, "evaluate-ltr", ["request", "ad"])
    part = logged(study.folder, "ltr", 77, ["ad", "request"])
    rows = whole["request"] < study.sim.arrivals.first_request("evaluate") + 77
    assert part["ad"].tolist() == whole["ad"][rows].tolist() and 77 <= len(part["ad"]) <= 77 * 3
    assert len(logged(study.folder, "ltr", 10**6, ["ad"])["ad"]) == len(whole["ad"])


def test_a_log_that_is_gone_is_none(study, tmp_path):
    assert logged(tmp_path, "ltr", 5, ["ad"]) is None
    assert logged(study.folder, "unknown", 5, ["ad"]) is None
