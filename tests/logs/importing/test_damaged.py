"""Damaged logs: each is refused or mended with its rows named, and nothing half-written stays."""

import re

import pytest

from cascade_sim.logs.importing.market import import_market
from cascade_sim.logs.store import open_store
from drills.damaged_logs import DAMAGED, MENDED, judge
from logs.importing.test_importer import content
from worlds.small_log import small_log


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: damage.name)
def test_a_damaged_log_is_refused_or_mended_with_its_rows_named(damage, tmp_path):
    verdict, said = judge(damage, tmp_path)
    assert (verdict, bool(re.search(damage.words, said))) == (damage.verdict, True), said


SAME = [damage for damage in DAMAGED if damage.verdict == MENDED and "twice" not in damage.name]


@pytest.mark.parametrize("damage", SAME, ids=lambda damage: damage.name)
@pytest.mark.few(4)
def test_a_mended_log_is_the_log_that_was_meant(damage, tmp_path):
    judge(damage, tmp_path / "damaged")
    mended = open_store(tmp_path / "damaged" / "market")
    whole = import_market(small_log().write(tmp_path / "log"), tmp_path / "market").store
    rows, who = content(whole)
    if damage.name == "ids as floats":  # the sample writes its ids without the letter, too
        rows = {(request[1:], ad): values for (request, ad), values in rows.items()}
        who = {request[1:]: values for request, values in who.items()}
    assert content(mended) == (rows, who)


def test_there_are_sixty_and_more():
    assert len({damage.name for damage in DAMAGED}) == len(DAMAGED) >= 60
