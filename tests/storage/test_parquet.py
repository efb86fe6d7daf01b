"""Our own Parquet files: other readers of the format read the same bits, whatever the columns look like."""

import hashlib

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.told import refused
from cascade_sim.storage import parquet, runs
from cascade_sim.storage.parquet import PartWriter
from cascade_sim.storage.tables import TableWriter, read_table

DTYPES = [np.dtype(name) for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]


def write(path, *groups):
    """A file of these row groups, each a dictionary of columns."""
    writer = PartWriter(path, {name: values.dtype for name, values in groups[0].items()})
    for group in groups:
        writer.write_table(group)
    writer.close()
    writer.close()
    return writer


def assert_read(path, wanted):
    """Arrow gives these columns back, to the bit and in their types, none of them with room for a hole."""
    table = pq.read_table(path)
    assert table.schema.names == list(wanted)
    for name, values in wanted.items():
        assert table.schema.field(name).type == pa.from_numpy_dtype(values.dtype)
        assert not table.schema.field(name).nullable
        read = table[name].to_numpy()
        assert read.dtype == values.dtype and read.tobytes() == values.tobytes(), name


def column(draw, dtype, n):
    """Values of every looks: one, few or many different ones, each alone or several times in a row."""
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    different = draw(st.sampled_from([1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 5000]))
    bits = generator.integers(0, 256, different * dtype.itemsize, np.uint8)  # NaN, -0.0, anything
    pool = bits < 128 if dtype.kind == "b" else bits.view(dtype)
    values = pool[generator.integers(0, different, n)]
    return np.repeat(values, generator.integers(1, draw(st.sampled_from([2, 4, 30])), n))[:n]


@st.composite
def groups(draw):
    """Some row groups of some columns."""
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=20))
    sizes = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=3))
    return [
        {f"column {i}": column(draw, dtype, n) for i, dtype in enumerate(dtypes)}
        for n in sizes
    ]  # fmt: skip


@given(groups())
def test_what_is_written_is_read_to_the_bit(tmp_path_factory, groups):
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    writer = write(path, *groups)
    assert_read(path, {name: np.concatenate([group[name] for group in groups]) for name in groups[0]})
    assert pq.ParquetFile(path).metadata.num_row_groups == len(groups)
    content = path.read_bytes()
    assert writer.size == len(content) and writer.digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("n", [1, 7, 8, 9, 127, 128, 300])
@pytest.mark.parametrize("different", [1, 2, 3, 4, 5, 16, 17, 256, 257])
@pytest.mark.parametrize("dtype", ["i1", "i4", "f8"])
def test_places_of_any_width_are_read_wherever_a_page_ends(tmp_path, n, different, dtype):
    values = (np.arange(n) * 7919 % different).astype(dtype)
    write(tmp_path / "x.parquet", {"x": values})
    assert_read(tmp_path / "x.parquet", {"x": values})


@pytest.mark.parametrize("length", [1, 63, 64, 8191, 8192, 60_000])
def test_runs_of_any_length_are_read(tmp_path, length):
    values = np.repeat(np.array([1.5, -0.0, np.nan, 0.0]), length)
    write(tmp_path / "x.parquet", {"x": values})
    assert_read(tmp_path / "x.parquet", {"x": values})


def test_more_runs_than_two_bytes_can_name_are_read(tmp_path):
    values = np.repeat(np.arange(70_000), 3)
    write(tmp_path / "x.parquet", {"x": values})
    assert_read(tmp_path / "x.parquet", {"x": values})
    assert (tmp_path / "x.parquet").stat().st_size < 0.6 * values.nbytes


def test_another_program_reads_the_same(tmp_path):
    generator = np.random.default_rng(1)
    wanted = {
        "request": np.repeat(np.arange(4000, dtype=np.int64) + 5 * 10**9, 3),
        "slot": np.tile(np.arange(3, dtype=np.int8), 4000),
        "pctr": generator.random(12_000).astype(np.float32),
        "bid": generator.choice(generator.random(40), 12_000),
        "ad": generator.integers(0, 60_000, 12_000).astype(np.uint16),
        "click": generator.random(12_000) < 0.01,
        "charge": np.where(generator.random(12_000) < 0.01, generator.integers(1, 10**6, 12_000), 0),
    }
    write(tmp_path / "x.parquet", wanted)
    read = duckdb.sql(f"select * from '{tmp_path / 'x.parquet'}'").fetchnumpy()
    for name, values in wanted.items():
        assert read[name].dtype == values.dtype and np.array_equal(read[name], values), name


def test_a_column_is_stored_in_the_shortest_of_three_ways(tmp_path):
    at = np.arange(60_000)
    one, few, run, many = np.ones(60_000), at % 200 / 7, at // 3 / 7, at / 7
    sizes = {}
    for name, values in {"one": one, "few": few, "run": run, "many": many}.items():
        sizes[name] = write(tmp_path / name, {"x": values}).size
        assert_read(tmp_path / name, {"x": values})
    assert sizes["one"] < 300 and sizes["few"] < 62_500  # a byte a value
    assert sizes["run"] < 20_000 * 11 + 300 and sizes["many"] < 480_300  # 8 + 3 a run; 8 a value
    encodings = {
        name: pq.ParquetFile(tmp_path / name).metadata.row_group(0).column(0).encodings for name in sizes
    }
    assert encodings["many"] == ("PLAIN",) and "RLE_DICTIONARY" in encodings["run"]


def test_different_values_are_looked_up_to_the_last_one_that_has_a_place():
    values = np.arange(1000, dtype=np.uint64)
    for n in (1, 256):
        known, places = runs.few(values[:n], 256)
        assert np.array_equal(known[places], values[:n])
    assert len(runs.few(values[:257], 256)[0]) == 0


def test_a_type_that_the_format_has_not_is_refused(tmp_path):
    with refused("complex128", kind=ValueError):
        parquet.kind_of(np.dtype(complex))


def test_no_rows_leave_a_file_with_the_columns_alone(tmp_path):
    write(tmp_path / "x.parquet", {"x": np.zeros(0), "y": np.zeros(0, bool)})
    assert_read(tmp_path / "x.parquet", {"x": np.zeros(0), "y": np.zeros(0, bool)})


def test_tables_of_older_versions_can_be_read(tmp_path):
    """They were written by Arrow, compressed, and may have no list of parts."""
    columns = {"request": np.repeat(np.arange(500), 2), "click": np.arange(1000) % 3 == 0}
    place = tmp_path / "logs" / "log"
    place.mkdir(parents=True)
    fields = [pa.field(name, pa.from_numpy_dtype(v.dtype), nullable=False) for name, v in columns.items()]
    table = pa.table([pa.array(values) for values in columns.values()], schema=pa.schema(fields))
    pq.write_table(table, place / "part-00000.parquet", compression="snappy", use_dictionary=False)
    with TableWriter(tmp_path / "now", "log") as writer:
        writer.append(columns)
    for folder in (tmp_path, tmp_path / "now"):
        read = read_table(folder, "log")
        assert all(np.array_equal(read[name], columns[name]) for name in columns) and list(read) == list(
            columns
        )
