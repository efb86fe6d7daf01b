"""Learning-to-rank files: what is read, and what is refused with file, line and reason."""

import gzip

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.ltr import files as ltr_files
from cascade_sim.ltr.files import read_file
from places import SHARED_DATA
from worlds.ltr_files import made_file, made_lists, write_svmlight

SHARED = SHARED_DATA / "lightgbm_rank"


def write(path, text):
    path.write_text(text)
    return path


def problem(path, **options):
    with pytest.raises(UserError) as caught:
        read_file(path, **options)
    return str(caught.value).replace(str(path.parent) + "/", "")


def test_features_left_out_are_zero_and_comments_are_no_data(tmp_path):
    file = write(tmp_path / "f", "# head\n2 qid:7 3:0.5 # doc 1\n\n0 qid:7 1:1\n1 qid:9 5:-2 1:3\n")
    data = read_file(file)
    assert data.columns.tolist() == [1, 3, 5]
    assert data.features.tolist() == [[0, 0.5, 0], [1, 0, 0], [3, 0, -2]]
    assert data.labels.tolist() == [2, 0, 1] and data.lists.tolist() == [0, 2, 3]


def test_a_test_file_has_the_columns_of_the_training_file(tmp_path):
    file = write(tmp_path / "f", "1 qid:1 2:5 9:7\n")
    assert read_file(file, columns=np.array([1, 2])).features.tolist() == [[0, 5]]


def test_what_is_written_is_read(tmp_path):
    features, labels, lists = made_lists(4, 30)
    data = read_file(write_svmlight(tmp_path / "f", features, labels, lists))
    assert np.array_equal(data.features, features.astype(np.float32))
    assert np.array_equal(data.labels, labels) and np.array_equal(data.lists, lists)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_gzip_is_told_by_the_content_whatever_the_name(tmp_path, suffix):
    plain = made_file(tmp_path, "f", 4, 5)
    packed = tmp_path / f"packed{suffix}"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain_named_gz = write(tmp_path / "plain.gz", plain.read_text())
    for file in (packed, plain_named_gz):
        assert np.array_equal(read_file(file).features, read_file(plain).features)


def test_a_file_read_in_small_blocks_is_the_same(tmp_path, monkeypatch):
    file = made_file(tmp_path, "f", 4, 20)
    whole = read_file(file)
    monkeypatch.setattr(ltr_files, "BLOCK", 37)
    bytes_read = []
    pieces = read_file(file, advance=bytes_read.append)
    assert np.array_equal(pieces.features, whole.features) and np.array_equal(pieces.lists, whole.lists)
    assert sum(bytes_read) == file.stat().st_size and len(bytes_read) > 10


@pytest.mark.parametrize("suffix", [".query", ".group"])
def test_list_sizes_may_stand_in_a_file_beside_it(tmp_path, suffix):
    file = write(tmp_path / "f", "1 1:1\n0 1:2\n0 1:3\n")
    write(tmp_path / f"f{suffix}", "1\n2\n")
    assert read_file(file).lists.tolist() == [0, 1, 3]
    (tmp_path / "f.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert read_file(tmp_path / "f.gz").lists.tolist() == [0, 1, 3]


def test_malformed_lines_are_listed_with_file_line_and_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(ltr_files, "BLOCK", 16)  # line numbers go on from block to block
    file = write(tmp_path / "f", "1 qid:1 1:1\n1 qid:1 1:one\n\n1 qid:1 2\nx qid:1 1:1\n")
    second, fourth, fifth = problem(file).splitlines()
    assert second.startswith("f:2: ") and tells(second, "feature 1", "'one'")
    assert fourth.startswith("f:4: ") and tells(fourth, "'2'", "id:value")
    assert fifth.startswith("f:5: ") and tells(fifth, "label", "'x'")


def test_only_the_first_few_malformed_lines_are_listed(tmp_path):
    file = write(tmp_path / "f", "x\n" * 100)
    found = problem(file).splitlines()
    assert [line.split(":")[1] for line in found[:-1]] == ["1", "2", "3", "4", "5"]
    assert found[-1].startswith("f: ") and tells(found[-1], "more")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: no rows"),
        ("# nothing\n\n", "f: no rows"),
        ("1 qid:1\n0 qid:1\n", "f: feature"),
        ("1 qid:1 1:1\n0 1:1\n", "f:2: qid"),
        (
            "1 qid:1 1:1\n0 qid:2 1:1\n# x\n1 qid:1 1:1\n",
            "f:4: qid 1",
        ),
        ("1 1:1\n", "f: qid f.query f.group"),
    ],
)
def test_what_makes_no_lists_is_refused(tmp_path, text, message):
    assert tells(problem(write(tmp_path / "f", text)), *message.split())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("1\ntwo\n", "f.query:2: 'two'"),
        ("1\n-1\n", "f.query:2: '-1'"),
        ("1\n3\n", "f.query: 4 2"),
    ],
)
def test_a_wrong_file_of_sizes_is_refused(tmp_path, sizes, message):
    file = write(tmp_path / "f", "1 1:1\n0 1:2\n")
    write(tmp_path / "f.query", sizes)
    assert tells(problem(file), *message.split())


def test_a_damaged_or_missing_file_is_refused(tmp_path):
    packed = tmp_path / "f"
    packed.write_bytes(gzip.compress(b"1 qid:1 1:1\n" * 1000)[:-20])
    assert tells(problem(packed), "f:", "gzip")
    assert tells(problem(tmp_path / "none"), "none:", "No such file")
    assert problem(tmp_path).endswith("Is a directory")


def test_a_table_too_large_for_memory_is_refused_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(ltr_files, "_CELLS", 3)
    file = write(tmp_path / "f", "1 qid:1 1:1 2:1\n0 qid:1 1:2\n")
    assert tells(problem(file), "f:", "2 rows", "2 features", "memory")


def test_some_lists_can_be_taken_in_any_order(tmp_path):
    data = read_file(write(tmp_path / "f", "1 qid:1 1:1\n2 qid:2 1:2\n3 qid:2 1:3\n4 qid:3 1:4\n"))
    taken = data.take_lists(np.array([2, 1]))
    assert taken.labels.tolist() == [4, 2, 3] and taken.features.ravel().tolist() == [4, 2, 3]
    assert taken.lists.tolist() == [0, 1, 3]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize(("name", "rows", "lists"), [("rank.train", 3005, 201), ("rank.test", 768, 50)])
def test_a_real_file_is_read_as_scikit_learn_reads_it(name, rows, lists):
    from sklearn.datasets import load_svmlight_file

    data = read_file(SHARED / name)
    features, labels = load_svmlight_file(str(SHARED / name), n_features=301, zero_based=True)
    assert (len(data.labels), data.n_lists) == (rows, lists)
    assert np.array_equal(data.labels, labels)
    assert np.array_equal(data.features, features.toarray()[:, data.columns].astype(np.float32))
    sizes = [int(line) for line in (SHARED / f"{name}.query").read_text().split()]
    assert np.diff(data.lists).tolist() == sizes
