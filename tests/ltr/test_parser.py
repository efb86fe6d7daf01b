"""The quick parser against the slow one that gives the reasons."""

import math
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.ltr.files import MAX_ID, NO_QID, TOO_LARGE, parse, parse_line
from effort import examples

GOOD = [
    "2 qid:10 1:0.5 3:-1e-3 # a comment 4:x",
    "0 1:1",
    "3.5\tqid:0\t7:+2.5E2 \r",
    "1",
    "0 qid:1 0:.5 2:5. 1:00012",
    "1 qid:1 1:123456789012345678901234567890 2:0.000000000000000000000000000012",
    "0 1:1e-400 2:0e999 3:-0",
    "#",
    "   ",
    "",
]
BAD = {
    "x 1:1": "the label, 'x', is not a finite number",
    "nan 1:1": "the label, 'nan', is not a finite number",
    "-1 1:1": "the label -1 is below 0",
    "1e39 1:1": "the label, 1e39, is too large",
    "1 qid:1.5 1:1": "the qid '1.5' is not an integer",
    "1 qid: 1:1": "the qid '' is not an integer",
    "1 1:1 qid:3": "qid must follow the label",
    "1 qid:1 qid:2": "qid must follow the label",
    "1 one:1": "the feature id 'one' is not an integer",
    "1 -1:1": "the feature id '-1' is not an integer",
    "1 5": "'5' is not of the form id:value",
    "1 5: 6:1": "the value of feature 5, '', is not a finite number",
    "1 5:inf": "the value of feature 5, 'inf', is not a finite number",
    "1 5:1_0": "the value of feature 5, '1_0', is not a finite number",
    "1 5:0x1": "the value of feature 5, '0x1', is not a finite number",
    "1 5:1e": "the value of feature 5, '1e', is not a finite number",
    "1 5:.": "the value of feature 5, '.', is not a finite number",
    "1 5:1e60": "the value of feature 5, 1e60, is too large",
    "1 5:1 5:2": "feature 5 is given twice",
    f"1 {MAX_ID + 1}:1": f"the feature id {MAX_ID + 1} is above {MAX_ID}",
    "1 5:1:2": "the value of feature 5, '1:2', is not a finite number",
}


def quickly(text):
    """What the quick parser makes of one line: a Line-like tuple, None, or "bad"."""
    parsed = parse(text.encode())
    if len(parsed.bad):
        assert parsed.bad.tolist() == [1] and len(parsed.labels) == 0
        return "bad"
    if len(parsed.labels) == 0:
        return None
    qid = None if parsed.qids[0] == NO_QID else int(parsed.qids[0])
    return float(parsed.labels[0]), qid, dict(zip(parsed.ids.tolist(), parsed.values.tolist(), strict=True))


def slowly(text):
    try:
        return parse_line(text)
    except ValueError:
        return "bad"


def assert_the_same(text):
    quick, slow = quickly(text), slowly(text)
    if slow in (None, "bad"):
        assert quick == slow
        return
    assert quick not in (None, "bad")
    assert quick[1] == slow.qid and list(quick[2]) == list(slow.features)
    wanted = [slow.label, *slow.features.values()]
    assert [quick[0], *quick[2].values()] == pytest.approx(wanted, rel=2e-7, abs=1e-44)


@pytest.mark.parametrize("text", [*GOOD, *BAD])
@pytest.mark.few(8)
def test_the_quick_parser_reads_and_refuses_what_the_slow_one_does(text):
    assert_the_same(text)


@pytest.mark.parametrize("text", GOOD)
def test_good_lines_are_read(text):
    assert slowly(text) != "bad"


@pytest.mark.parametrize(("text", "reason"), BAD.items())
def test_a_malformed_line_has_its_reason(text, reason):
    with pytest.raises(ValueError) as caught:
        parse_line(text)
    assert str(caught.value) == reason


def test_values_are_those_written():
    line = parse_line(GOOD[0])
    assert line == (2.0, 10, {1: 0.5, 3: -0.001})
    label, qid, features = quickly(GOOD[0])
    assert (label, qid) == (2.0, 10)
    assert features == {1: 0.5, 3: float(np.float32(-0.001))}


@examples(300)
@given(st.text(alphabet="0123456789:.+-eE# \tqidx_", max_size=30))
def test_the_parsers_agree_on_lines_of_odd_characters(text):
    assert_the_same(text)


@examples(200)
@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.sampled_from(["g", ".9g", ".17g", "f"]))
def test_numbers_in_any_notation_keep_single_precision(number, notation):
    text = f"0 1:{number:{notation}}"
    got = quickly(text)
    wanted = float(f"{number:{notation}}")
    if abs(wanted) >= TOO_LARGE:
        assert got == "bad"
    else:
        assert got[2][1] == pytest.approx(wanted, rel=2e-7, abs=1e-44)


def test_rows_of_many_lines_know_where_they_come_from():
    text = "1 qid:1 1:1 2:2\n# nothing\n0 qid:1\nbad line\n\n2 qid:2 9:3"
    parsed = parse(text.encode(), first_line=11)
    assert parsed.labels.tolist() == [1, 0, 2]
    assert parsed.qids.tolist() == [1, 1, 2]
    assert parsed.line.tolist() == [11, 13, 16]
    assert parsed.starts.tolist() == [0, 2, 2, 3]
    assert parsed.ids.tolist() == [1, 2, 9] and parsed.values.tolist() == [1, 2, 3]
    assert parsed.bad.tolist() == [14] and parsed.n_lines == 5


def test_long_words_are_cut_in_messages():
    with pytest.raises(ValueError) as caught:
        parse_line(string.ascii_letters)
    assert len(str(caught.value)) < 80
    assert not math.isnan(parse_line("1").label)
