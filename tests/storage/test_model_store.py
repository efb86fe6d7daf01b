"""Trained models on disk: the right one is found again, and nothing wrong is ever loaded."""

import os
import stat
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from answers.told import refused, warned
from cascade_sim.storage.model_store import FOLDER_VARIABLE, ModelStore, content_key

KEY = "0123abcd"


def towers(seed=0, width=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 1))


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def is_same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def store(tmp_path):
    return ModelStore(tmp_path / "cache")


# Keys


def test_the_same_content_has_the_same_key_whatever_its_order_or_layout():
    x = np.arange(6.0).reshape(2, 3)
    one = content_key({"a": 1, "b": [2]}, {"x": x, "y": x[0]}, seed=1, semantics=2)
    other = content_key(
        {"b": [2], "a": 1}, {"y": x[0].copy(), "x": np.asfortranarray(x)}, semantics=2, seed=1
    )
    assert one == other and len(one) == 32


def test_a_key_stays_the_same_between_versions_and_machines():
    assert (
        content_key({"kind": "towers"}, {"x": np.arange(3, dtype=np.int32)}, seed=1)
        == "68c6f62c4b665f570b271bd25a049bac"
    )


def test_any_other_content_has_another_key():
    x = np.arange(6.0)
    keys = [
        content_key({"a": 1}, {"x": x}),
        content_key({"a": 2}, {"x": x}),
        content_key({"a": 1}, {"x": x}, seed=1),
        content_key({"a": 1, "seed": 1}, {"x": x}),
        content_key({"a": 1}, {"z": x}),
        content_key({"a": 1}, {"x": x + 1}),
        content_key({"a": 1}, {"x": x.reshape(2, 3)}),
        content_key({"a": 1}, {"x": x.view(np.int64)}),
        content_key({"a": 1}, {"x": x[:3], "y": x[3:]}),
        content_key({"a": 1}, {"x": x[:2], "y": x[2:]}),
        content_key({"a": 1}, {}),
    ]
    assert len(set(keys)) == len(keys)


def test_what_has_no_stable_bytes_has_no_key():
    with pytest.raises(TypeError):
        content_key({"model": object()}, {})
    with pytest.raises(ValueError):
        content_key({"rate": float("nan")}, {})
    with pytest.raises(ValueError, match="Python objects"):
        content_key({}, {"x": np.array([None])})


# Saving and loading


def test_a_saved_model_is_loaded_into_a_fresh_one(store):
    trained, fresh = towers(1), towers(2)
    assert not store.load(KEY, fresh)
    store.save(KEY, trained, {"model": "rank"})
    assert not is_same(weights(fresh), weights(trained))
    assert store.load(KEY, fresh)
    assert is_same(weights(fresh), weights(trained))
    assert os.listdir(store.folder) == [f"{KEY}.safetensors"]


def test_tied_weights_and_odd_tensors_survive(store):
    class Odd(nn.Module):
        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.one = nn.Linear(2, 2)
            self.two = self.one
            self.register_buffer("low_precision", torch.randn(3, 2).to(torch.bfloat16).T)
            self.register_buffer("scalar", torch.randn(()))
            self.register_buffer("empty", torch.zeros(0, 3))

    trained, fresh = Odd(1), Odd(2)
    store.save(KEY, trained, {})
    assert store.load(KEY, fresh)
    assert is_same(weights(fresh), weights(trained))


def test_files_are_the_same_to_the_byte_for_the_same_weights(store, tmp_path):
    for name in ("one", "two"):
        store.export(towers(1), tmp_path / "models" / f"{name}.safetensors", {"b": 1, "a": 2})
    one, two = (tmp_path / "models" / f"{name}.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_what_was_noted_with_weights_is_read_without_them(store):
    module = torch.nn.Linear(2, 1)
    store.save("ab", module, {"line": {"steps": [0, 5]}})
    assert store.note("ab")["line"] == {"steps": [0, 5]}
    assert store.note("cd") == {}
    (store.folder / "ef.safetensors").write_bytes((store.folder / "ab.safetensors").read_bytes())
    assert store.note("ef") == {}  # it was stored under another key
    (store.folder / "ab.safetensors").write_bytes(b"not weights")
    assert store.note("ab") == {}


def test_an_exported_file_is_plain_safetensors(store, tmp_path):
    from safetensors.torch import load_file

    store.export(towers(1), tmp_path / "rank.safetensors")
    assert is_same(load_file(tmp_path / "rank.safetensors"), weights(towers(1)))


def test_damaged_files_count_as_absent_and_are_removed(store):
    store.save(KEY, towers(1), {})
    path = store.folder / f"{KEY}.safetensors"
    whole = path.read_bytes()
    flipped = whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
    for damaged in (b"", b"junk", whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        fresh = towers(2)
        with warned(f"{KEY}.safetensors", "not usable"):
            assert not store.load(KEY, fresh)
        assert is_same(weights(fresh), weights(towers(2)))
        assert not path.exists()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (towers(1, width=5), ["0.weight", "torch.float32", "[5, 4]", "[3, 4]"]),
        (towers(1).double(), ["0.weight", "torch.float64"]),
        (nn.Linear(4, 3), ["['bias', 'weight']"]),
    ],
)
def test_weights_of_another_model_are_not_loaded_not_even_in_part(store, other, message):
    store.save(KEY, other, {})
    fresh = towers(2)
    with warned(*message):
        assert not store.load(KEY, fresh)
    assert is_same(weights(fresh), weights(towers(2)))


def test_a_file_of_another_program_is_not_loaded(store):
    from safetensors.torch import save_file

    store.folder.mkdir()
    save_file(weights(towers(1)), store.folder / f"{KEY}.safetensors")
    with warned("checksum"):
        assert not store.load(KEY, towers(2))


def test_any_changed_byte_of_what_was_noted_is_noticed(store):
    """A note is copied into a run's results, so a changed digit in it would change them silently."""
    store.save(KEY, towers(1), {"line": {"loss": [0.6931, 0.25]}})
    path = store.folder / f"{KEY}.safetensors"
    whole = path.read_bytes()
    head = 8 + int.from_bytes(whole[:8], "little")
    noted = store.note(KEY)
    for at in range(8, head):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.note(KEY) in ({}, noted)
    path.write_bytes(whole.replace(b"0.6931", b"0.6937"))
    assert store.note(KEY) == {}
    with pytest.warns(UserWarning, match="checksum"):
        assert not store.load(KEY, towers(2))


def test_keys_cannot_lead_out_of_the_folder(store):
    for key in ("../x", "", "ABC"):
        with refused(repr(key), "key", kind=ValueError):
            store.load(key, towers())


# Where the folder is, and when it cannot be used


def test_the_folder_comes_from_the_argument_the_environment_or_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "set"))
    assert ModelStore(tmp_path / "given").folder == tmp_path / "given"
    assert ModelStore().folder == tmp_path / "set"
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert ModelStore().folder == tmp_path / "home" / ".cache" / "cascade_sim" / "models"
    assert not (tmp_path / "home").exists()  # nothing is made before something is saved


def test_a_folder_that_cannot_be_written_costs_the_cache_and_one_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = ModelStore(tmp_path / "file" / "models")
    assert not store.load(KEY, towers())
    with warned(tmp_path / "file", "Not a directory"):
        store.save(KEY, towers(), {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.save(KEY, towers(), {})
        assert not store.load(KEY, towers())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_costs_the_cache_and_one_warning(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.warns(UserWarning, match="Permission denied"):
            ModelStore(tmp_path).save(KEY, towers(), {})
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_a_model_whose_state_is_no_tensor_is_not_kept_and_cannot_be_exported(store, tmp_path):
    class Secretive(nn.Linear):
        def get_extra_state(self):
            return {"secret": 1}

        def set_extra_state(self, state):
            pass

    with refused("'_extra_state'", "tensor"):
        store.export(Secretive(2, 2), tmp_path / "x.safetensors")
    with warned("'_extra_state'", "tensor"):
        store.save(KEY, Secretive(2, 2), {})
    store.save(KEY, towers(), {})
    assert store.load(KEY, towers(1))  # other models are
