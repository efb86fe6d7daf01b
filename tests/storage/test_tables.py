"""The Parquet log: what goes in comes out, in checksummed parts, whatever the blocks."""

import errno
import json
import subprocess
import sys
from hashlib import blake2b

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage import tables as records
from cascade_sim.storage.tables import TableWriter, iterate_table, read_table, tables


def rows(n, start=0):
    """Columns of every kind the log has."""
    at = np.arange(start, start + n)
    return {
        "request": at,
        "ad": (at % 97).astype(np.int32),
        "slot": (at % 5).astype(np.int8),
        "pctr": (at / 7000).astype(np.float32),
        "time": at / 3,
        "click": at % 3 == 0,
    }


def write(folder, sizes, **options):
    start = 0
    with TableWriter(folder, "log", **options) as table:
        for n in sizes:
            table.append(rows(n, start))
            start += n
    return folder / "logs" / "log"


def names(folder):
    """What lies there, but for the list of parts."""
    return sorted(path.name for path in folder.iterdir() if path.name != "_parts.json")


def assert_same(got, want):
    assert list(got) == list(want)
    for name in want:
        assert got[name].dtype == want[name].dtype, name
        np.testing.assert_array_equal(got[name], want[name])


def test_what_is_appended_is_read_back_in_order_and_type(tmp_path):
    write(tmp_path, [512, 0, 300, 1])
    assert_same(read_table(tmp_path, "log"), rows(813))


def test_parts_are_sealed_as_soon_as_they_are_full(tmp_path):
    table = TableWriter(tmp_path, "log", rows_per_part=100)
    table.append(rows(250))
    assert [n for n in names(table.folder) if n.startswith("part")] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert_same(read_table(tmp_path, "log"), rows(200))
    table.close()
    table.close()
    assert names(table.folder) == [f"part-0000{i}.parquet" for i in range(3)]
    assert table.rows == 250
    assert_same(read_table(tmp_path, "log"), rows(250))


def test_the_bytes_do_not_depend_on_how_rows_come_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "ROW_GROUP", 64)
    one = write(tmp_path / "one", [500], rows_per_part=200)
    many = write(tmp_path / "many", [1, 199, 7, 100, 193], rows_per_part=200)
    assert names(one) == names(many) == [f"part-0000{i}.parquet" for i in range(3)]
    for name in names(one):
        assert (one / name).read_bytes() == (many / name).read_bytes()


def test_a_part_that_ends_on_its_limit_is_not_followed_by_an_empty_one(tmp_path):
    assert names(write(tmp_path, [100, 100], rows_per_part=100)) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]


def test_a_block_without_rows_makes_an_empty_table_and_no_block_none(tmp_path):
    write(tmp_path, [0])
    assert_same(read_table(tmp_path, "log"), rows(0))
    write(tmp_path / "none", [])
    assert not (tmp_path / "none").exists()


def test_only_the_columns_asked_for_are_read_in_that_order(tmp_path):
    write(tmp_path, [10])
    want = {name: rows(10)[name] for name in ("click", "ad")}
    assert_same(read_table(tmp_path, "log", ["click", "ad"]), want)


def test_iterating_gives_small_batches_in_order(tmp_path):
    write(tmp_path, [250], rows_per_part=100)
    batches = list(iterate_table(tmp_path, "log", ["request", "click"], batch_rows=30))
    assert max(len(batch["request"]) for batch in batches) == 30
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in ("request", "click")}
    assert_same(joined, {name: rows(250)[name] for name in ("request", "click")})


def test_writing_strided_columns_and_changing_them_afterwards_is_safe(tmp_path):
    grid = np.arange(20.0).reshape(10, 2)
    with TableWriter(tmp_path, "log") as table:
        table.append({"x": grid[:, 1]})
        grid[:] = -1
    assert read_table(tmp_path, "log")["x"].tolist() == [2.0 * i + 1 for i in range(10)]


def test_memory_holds_one_row_group_however_many_rows_come(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "ROW_GROUP", 64)
    with TableWriter(tmp_path, "log", rows_per_part=1000) as table:
        for start in range(0, 5000, 500):
            table.append(rows(500, start))
            assert {len(buffer) for buffer in table._buffers.values()} == {64}
    assert len(read_table(tmp_path, "log")["ad"]) == 5000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.zeros(2), "y": np.zeros(3, np.int32)}, "differ in length"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "y: float64, int32"),
        ({"x": np.zeros(2)}, "['x'], ['x', 'y']"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(2, np.int32)}, "x: float64 (2, 2)"),
        ({"x": np.array(["a"]), "y": np.zeros(1, np.int32)}, "numbers or booleans"),
        ({}, "no columns"),
    ],
)
def test_blocks_that_do_not_fit_are_refused_and_add_nothing(tmp_path, columns, message):
    with TableWriter(tmp_path, "log") as table:
        table.append({"x": np.ones(1), "y": np.ones(1, np.int32)})
        with refused(*message.split(), kind=ValueError):
            table.append(columns)
    assert_same(read_table(tmp_path, "log"), {"x": np.ones(1), "y": np.ones(1, np.int32)})


def test_bad_names_sizes_and_late_blocks_are_refused(tmp_path):
    with pytest.raises(ValueError, match="table name"):
        TableWriter(tmp_path, "../log")
    with pytest.raises(ValueError, match="rows_per_part is 0"):
        TableWriter(tmp_path, "log", rows_per_part=0)
    table = TableWriter(tmp_path, "log")
    table.close()
    with pytest.raises(ValueError, match="closed"):
        table.append(rows(1))


def test_a_run_that_fails_leaves_sealed_parts_and_nothing_half_written(tmp_path):
    with pytest.raises(RuntimeError), TableWriter(tmp_path, "log", rows_per_part=100) as table:
        table.append(rows(150))
        table._write_row_group()  # a row group of the second part is on the disk
        assert len(names(table.folder)) == 2
        raise RuntimeError
    assert names(tmp_path / "logs" / "log") == ["part-00000.parquet"]


def test_a_second_writer_of_the_same_table_is_refused(tmp_path):
    write(tmp_path, [1])
    with refused(tmp_path / "logs" / "log", "already"):
        TableWriter(tmp_path, "log")


def test_a_full_disk_is_reported_with_the_file_and_leaves_no_half_part(tmp_path, monkeypatch):
    class FullDisk:
        def __init__(self, path, *_, **__):
            path.touch()

        def write_table(self, *_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "_open_part", FullDisk)
    table = TableWriter(tmp_path, "log", rows_per_part=10)
    with refused("part-00000.parquet", "No space left"):
        table.append(rows(10))
    assert names(table.folder) == []


def test_a_part_that_cannot_even_be_opened_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "_open_part", full)
    table = TableWriter(tmp_path, "log", rows_per_part=10)
    with refused("No space left"):
        table.append(rows(10))
    assert names(table.folder) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "logs").write_text("in the way")
    with refused(tmp_path / "logs", "File exists"):
        write(tmp_path, [1])


def test_a_missing_table_column_or_part_is_named_with_what_there_is(tmp_path):
    with refused("'log'", "none"):
        read_table(tmp_path, "log")
    folder = write(tmp_path, [250], rows_per_part=100)
    assert tables(tmp_path) == ["log"]
    with refused("'lag'", "log"):
        read_table(tmp_path, "lag")
    with refused("'log'", "'bid'", "request, ad, slot"):
        list(iterate_table(tmp_path, "log", ["bid"]))
    (folder / "part-00001.parquet").unlink()
    with pytest.raises(UserError, match=r"part-00001\.parquet is missing"):
        read_table(tmp_path, "log")


def test_tables_are_written_and_read_without_pandas(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from cascade_sim.storage.tables import TableWriter, iterate_table, read_table\n"
        "at = np.arange(100)\n"
        f"with TableWriter({str(tmp_path)!r}, 'log') as table:\n"
        "    table.append({'ad': at, 'click': at % 3 == 0})\n"
        f"read = read_table({str(tmp_path)!r}, 'log')\n"
        f"parts = list(iterate_table({str(tmp_path)!r}, 'log', batch_rows=37))\n"
        "assert all((np.concatenate([part[name] for part in parts]) == read[name]).all() for name in read)\n"
        "assert (read['ad'] == at).all() and (read['click'] == (at % 3 == 0)).all()\n"
        "assert read['click'].dtype == bool and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_list_of_an_older_version_has_digests_of_another_kind(tmp_path):
    folder = write(tmp_path, [1000])
    part, parts = folder / "part-00000.parquet", folder / "_parts.json"
    own = json.loads(parts.read_text())["parts"][0]
    old = {"name": part.name, "bytes": own["bytes"], "digest": blake2b(part.read_bytes()).hexdigest()[:32]}
    parts.write_text(json.dumps({"parts": [old]}))
    assert len(read_table(tmp_path, "log")["ad"]) == 1000
    parts.write_text(json.dumps({"parts": [{**old, "digest": own["sha256"]}]}))
    with refused(part, "content"):
        read_table(tmp_path, "log")


def test_a_damaged_part_is_named(tmp_path):
    folder = write(tmp_path, [1000])
    (folder / "_parts.json").unlink()  # as runs of older versions are
    part = folder / "part-00000.parquet"
    whole = part.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:8] + b"\xff" * 500 + whole[508:]):
        part.write_bytes(damaged)
        with pytest.raises(UserError, match=r"cannot read .*part-00000\.parquet"):
            read_table(tmp_path, "log")
