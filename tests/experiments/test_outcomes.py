"""A row per request: sums over its slots, and late charges on the right row."""

from types import SimpleNamespace

import numpy as np

from cascade_sim.experiments.run import DTYPES, Outcomes


def settled(first=10):
    block = SimpleNamespace(
        requests=np.array([first, first + 1]), users=np.array([3, 4], np.int32), times=np.array([1.0, 2.0])
    )
    return SimpleNamespace(
        block=block,
        ads=np.array([[5, 6], [7, -1]]),
        clicks=np.array([[True, True], [False, False]]),
        charges_micros=np.array([[100, 20], [0, 0]]),
    )


def test_a_request_has_the_sums_of_its_slots():
    found = Outcomes()
    found.add(settled(), np.array([True, False]), is_late=False)
    columns = found.columns()
    assert columns["impressions"].tolist() == [2, 1] and columns["clicks"].tolist() == [2, 0]
    assert columns["revenue_micros"].tolist() == [120, 0] and columns["charged_clicks"].tolist() == [2, 0]
    assert columns["is_treated"].tolist() == [True, False]


def test_late_charges_find_their_request_and_survive_a_stop():
    found = Outcomes()
    for first in (10, 12):
        found.add(settled(first), np.array([True, False]), is_late=True)
    before = found.columns()["revenue_micros"].tolist()
    assert found.columns()["charged_clicks"].tolist() == [0] * 4
    found.charge(np.array([12, 10, 12]), np.array([7, 5, 2]))
    assert found.columns()["revenue_micros"].tolist() == [before[0] + 5, 0, before[2] + 9, 0]
    again = Outcomes()
    again.restore(found.state())
    again.charge(np.array([11]), np.array([1]))
    assert again.columns()["revenue_micros"].tolist() == [before[0] + 5, 1, before[2] + 9, 0]
    assert again.columns()["charged_clicks"].tolist() == [1, 1, 2, 0]


def test_nothing_is_no_rows():
    assert {name: len(column) for name, column in Outcomes().columns().items()} == dict.fromkeys(DTYPES, 0)


def test_a_row_is_narrow():
    assert sum(np.dtype(dtype).itemsize for dtype in DTYPES.values()) <= 35
