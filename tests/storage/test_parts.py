"""The list of checksummed parts: whatever happens to a part afterwards is noticed and named."""

import json

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.tables import PARTS, PartList, TableWriter, iterate_table, read_table, tables


@pytest.fixture
def folder(tmp_path):
    """25 rows in parts of 10."""
    with TableWriter(tmp_path, "log", rows_per_part=10) as table:
        table.append({"x": np.arange(25)})
    return tmp_path / "logs" / "log"


def read(folder):
    return read_table(folder.parents[1], "log")["x"]


def test_the_list_names_every_part_with_its_size(folder):
    listed = json.loads((folder / PARTS).read_text())["parts"]
    assert [part["name"] for part in listed] == [f"part-0000{i}.parquet" for i in range(3)]
    assert [part["bytes"] for part in listed] == [(folder / p["name"]).stat().st_size for p in listed]


def test_the_same_rows_give_the_same_list(folder, tmp_path):
    with TableWriter(tmp_path / "again", "log", rows_per_part=10) as table:
        for x in range(25):
            table.append({"x": np.array([x])})
    assert (tmp_path / "again" / "logs" / "log" / PARTS).read_bytes() == (folder / PARTS).read_bytes()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_part_is_named_even_if_it_is_the_last(folder, number):
    (folder / f"part-0000{number}.parquet").unlink()
    with pytest.raises(UserError, match=rf"log/part-0000{number}\.parquet is missing"):
        read(folder)
    with pytest.raises(UserError, match=rf"log/part-0000{number}\.parquet is missing"):
        next(iterate_table(folder.parents[1], "log"))


def test_a_table_that_lost_all_its_parts_is_not_taken_for_absent(folder):
    for part in folder.glob("*.parquet"):
        part.unlink()
    assert tables(folder.parents[1]) == ["log"]
    with pytest.raises(UserError, match=r"part-00000\.parquet is missing"):
        read(folder)


def test_a_part_cut_short_is_named(folder):
    part = folder / "part-00002.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with refused("part-00002.parquet", "damaged", "100 bytes"):
        read(folder)


def test_a_part_with_one_bit_changed_is_named_although_it_can_still_be_read(tmp_path):
    values = np.random.default_rng(1).random(100)  # so random that compression leaves them as they are
    with TableWriter(tmp_path, "log") as table:
        table.append({"x": values})
    part = table.folder / "part-00000.parquet"
    content = bytearray(part.read_bytes())
    content[content.index(values[50].tobytes())] ^= 1
    part.write_bytes(content)
    with refused("part-00000.parquet", "damaged", "content"):
        read(table.folder)
    (table.folder / PARTS).unlink()
    assert np.flatnonzero(read(table.folder) != values).tolist() == [50]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"parts": [{"name": "x"}]}', '{"parts": 3}'])
def test_a_damaged_list_is_named(folder, text):
    (folder / PARTS).write_text(text)
    with pytest.raises(UserError, match=r"parts\.json is damaged"):
        read(folder)


def test_a_part_that_was_sealed_just_before_a_kill_and_is_not_listed_does_not_count(folder):
    sealed = PartList.read(folder).first(2)
    sealed.write()
    assert list(read(folder)) == list(range(20))


def test_going_on_with_a_table_drops_what_was_sealed_later_and_refuses_what_is_damaged(tmp_path):
    table = TableWriter(tmp_path, "log", rows_per_part=10)
    table.append({"x": np.arange(25)})
    state = table.state()
    table.append({"x": np.arange(25, 45)})
    table.close()
    again = TableWriter.resume(tmp_path, "log", state)
    assert PartList.read(again.folder).names == ["part-00000.parquet", "part-00001.parquet"]
    again.append({"x": np.arange(25, 40)})
    again.close()
    assert list(read(again.folder)) == list(range(40))
    part = again.folder / "part-00001.parquet"
    part.write_bytes(b"?" * part.stat().st_size)
    with refused("part-00001.parquet", "damaged", "--resume"):
        TableWriter.resume(tmp_path, "log", state)
    part.unlink()
    with refused("part-00001.parquet", "missing", "--resume"):
        TableWriter.resume(tmp_path, "log", state)
    assert len(list(again.folder.glob("*.parquet"))) == 3  # refused before anything is removed


def test_beginning_anew_forgets_the_list(folder):
    TableWriter.anew(folder.parents[1], "log").close()
    assert list(folder.iterdir()) == []
