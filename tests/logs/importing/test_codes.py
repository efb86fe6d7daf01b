"""Names become numbers and back, however they are written; a store of a million takes some tens of bytes
each.
"""

import numpy as np
import pyarrow as pa
import pytest

from cascade_sim.logs.importing.codes import NULL, UNKNOWN, Codes, hashes_of


def test_a_name_has_one_code_in_whatever_batch_it_comes():
    codes = Codes()
    first = codes.encode(pa.array(["b", "a", "b", None]))
    assert first[0] == first[2] != first[1] and first[3] == NULL
    again = codes.encode(pa.array(["c", "a"]))
    assert again[1] == first[1] and codes.n == 3
    assert codes.names().to_pylist()[first[0]] == "b"


def test_a_name_that_is_not_there_is_unknown_and_stays_so():
    codes = Codes()
    codes.encode(pa.array(["a"]))
    assert codes.encode(pa.array(["x", "a", None]), add=False).tolist() == [UNKNOWN, 0, NULL]
    assert codes.n == 1


@pytest.mark.parametrize("order", [["12", "12.0", " 12", "12.00 "], ["12.0", " 12", "12.00 ", "12"]])
def test_other_ways_to_write_a_name_are_the_name(order):
    codes = Codes()
    found = [int(codes.encode(pa.array([name]))[0]) for name in order]
    assert found == [0, 0, 0, 0] and codes.names().to_pylist() == ["12"]
    assert codes.encode(pa.array(order), add=False).tolist() == [0, 0, 0, 0]
    assert {name for names in codes.corrected.values() for name in names} == set(order) - {"12"}


def test_ranks_are_by_number_where_all_are_whole_and_else_by_letter():
    numbers, words = Codes(), Codes()
    numbers.encode(pa.array(["10", "9", "-3"]))
    words.encode(pa.array(["10", "9", "x"]))
    assert numbers.ranked(numbers.ranks()).to_pylist() == ["-3", "9", "10"]
    assert words.ranked(words.ranks()).to_pylist() == ["10", "9", "x"]
    zeros = Codes()
    zeros.encode(pa.array(["07", "7"]))  # two names, though one number
    assert zeros.n == 2 and zeros.ranked(zeros.ranks()).to_pylist() == ["07", "7"]


def test_many_names_keep_their_codes_as_the_table_grows():
    codes = Codes()
    names = [f"ad {i}" for i in range(20_000)]
    first = codes.encode(pa.array(names))
    assert sorted(first.tolist()) == list(range(20_000))
    np.testing.assert_array_equal(codes.encode(pa.array(names[::-1]), add=False), first[::-1])


def test_a_slice_of_an_array_has_the_hashes_of_its_own_names():
    whole = pa.array(["a", "bc", "", "def"], pa.large_string())
    np.testing.assert_array_equal(hashes_of(whole.slice(1, 2)), hashes_of(whole)[1:3])
    assert len(set(hashes_of(whole).tolist())) == 4
