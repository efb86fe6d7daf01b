"""What a run wrote is what is read: one digit that changed is told, with the file and what to do."""

import json
import shutil
import warnings

import pytest

from answers.told import refused, tells, warned
from cascade_sim.cli import main
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.storage import checksums
from cascade_sim.storage.checkpoints import load_figures, load_state, save_figures, save_state
from cascade_sim.storage.folder import open_run
from cascade_sim.study import run as study
from worlds.foreign_run import SCENARIO

# A stopped run with marks, a state, figures and tables, and a finished one.
LONG = {**SCENARIO, "arms": {"now": {}, "first": {"auction": {"pricing": "first"}}}}
LONG["market"] = {**SCENARIO["market"], "days": 0.02, "requests_per_second": 0.3, "checkpoint": 300.0}


def run(folder, out, *more):
    (folder / "s.yaml").write_text(json.dumps(LONG))
    return main(["run", str(folder / "s.yaml"), "--out", str(out), "--workers", "1", "--quiet", *more])


@pytest.fixture(autouse=True, scope="module")
def small():
    """No report, and parts so small that a market seals some before its first checkpoint."""
    from cascade_sim.market import study as market_study

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "write_report", lambda *arguments, **options: None)
        patch.setattr(market_study, "ROW_GROUP", 60)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    assert run(folder, folder / "out") == 0
    return folder / "out"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Stopped in its second market: the first has its figures, the second a state."""
    from cascade_sim.market import study as market_study

    folder, saved = tmp_path_factory.mktemp("stopped"), []
    real = market_study.save_state

    def save(file, state):
        real(file, state)
        saved.append(file.name)
        if saved.count("first.npz") == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(market_study, "save_state", save)
        assert run(folder, folder / "out") == 130
    return folder / "out"


@pytest.fixture
def copy(request, tmp_path):
    return lambda of: shutil.copytree(of, tmp_path / "out")


def change_a_digit(path):
    """The last digit of a text that is not part of a name; of other files, one bit in the middle."""
    data = bytearray(path.read_bytes())
    if path.name == "manifest.json":  # whose last digits are those of seconds, beyond what a number holds
        path.write_bytes(data.replace(b'"workers": 1', b'"workers": 2'))
        return
    at = max(i for i, byte in enumerate(data) if chr(byte).isdigit() and i < len(data) * 0.9)
    data[at] = data[at] ^ 1
    path.write_bytes(bytes(data))


def results(out):
    files = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    return {name: data for name, data in files.items() if name != "manifest.json"}


def test_all_that_is_read_back_is_sealed(finished):
    sealed = json.loads((finished / "manifest.json").read_text())["seals"]
    files = set(results(finished))
    assert {name for name in files if not name.endswith(".parquet")} == set(sealed)
    tables = {name.rpartition("/")[0] for name in files if name.endswith(".parquet")}
    assert {f"{table}/_parts.json" for table in tables} <= set(sealed)  # which has the digests of the parts


@pytest.mark.parametrize(
    "name", ["metrics.json", "metrics.csv", "blocks.json", "scenario.yaml", "manifest.json"]
)
def test_a_digit_changed_in_a_finished_run_is_told_by_every_reader(finished, copy, tmp_path, capsys, name):
    assert main(["baseline", str(finished), "--out", str(tmp_path / "kept.json")]) == 0
    out = copy(finished)
    change_a_digit(out / name)
    capsys.readouterr()
    for words in (
        ["check", str(out), "--against", str(tmp_path / "kept.json")],
        ["report", str(out)],
        ["baseline", str(out), "--out", str(tmp_path / "other.json")],
        ["compare", str(finished), str(out)],
        ["trace", str(out), "--request", "0"],
        ["run", str(finished.parent / "s.yaml"), "--out", str(out), "--quiet", "--resume"],
    ):
        assert main(words) == 2, words
        said = capsys.readouterr().err
        assert tells(said, name), words


@pytest.mark.parametrize(
    "name", ["models/rank.safetensors", "models/pre.safetensors", "logs/evaluate-now/_parts.json"]
)
def test_a_bit_changed_in_what_is_read_later_is_told_then(finished, copy, capsys, name):
    out = copy(finished)
    change_a_digit(out / name)
    assert main(["trace", str(out), "--request", "0"]) == 2
    assert tells(capsys.readouterr().err, name, "the run wrote")


def test_a_list_of_parts_that_was_removed_is_missed(finished, copy, capsys):
    out = copy(finished)
    (out / "logs" / "evaluate-now" / "_parts.json").unlink()
    assert main(["trace", str(out), "--request", "0"]) == 2
    assert tells(capsys.readouterr().err, "_parts.json", "missing")


def test_logs_that_were_removed_whole_to_save_space_are_no_fault(finished, copy):
    out = copy(finished)
    shutil.rmtree(out / "logs")
    assert main(["trace", str(out), "--request", "0"]) == 0


def test_weights_of_two_models_that_were_swapped_are_told(finished, copy, capsys):
    """Of one class and shape they would load."""
    out = copy(finished)
    (out / "models" / "rank.safetensors").write_bytes((out / "models" / "pre.safetensors").read_bytes())
    assert main(["trace", str(out), "--request", "0"]) == 2
    assert tells(capsys.readouterr().err, "rank.safetensors", "the run wrote")


def test_an_edit_on_purpose_is_told_what_to_do_instead(finished, copy, capsys):
    out = copy(finished)
    text = (out / "scenario.yaml").read_text()
    (out / "scenario.yaml").write_text(text.replace("reserve_cpc: 0.2", "reserve_cpc: 0.3"))
    assert main(["whatif", str(out), "--set", "auction.reserve_cpc=0.1"]) == 2
    said = capsys.readouterr().err
    assert tells(said, "scenario.yaml", "copy")


def test_a_run_of_an_older_version_is_read_with_a_word(finished, copy):
    out = copy(finished)
    manifest = json.loads((out / "manifest.json").read_text())
    old = {key: value for key, value in manifest.items() if key not in (checksums.SEALS, checksums.SEAL)}
    (out / "manifest.json").write_text(json.dumps(old))
    with pytest.warns(Notice, match="not sealed"):
        assert open_run(out).metrics["arms"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_run(finished).metrics["arms"]


# A run that was stopped


def test_a_phase_whose_table_is_lost_is_done_again(finished, stopped, copy, capsys):
    """It trained on nothing, exit 0, with other metrics."""
    out = copy(stopped)
    shutil.rmtree(out / "logs" / "cold_start")
    with warned("logs/cold_start", "again", kind=Notice):
        assert run(out.parent, out, "--resume") == 0
    assert results(out) == results(finished)


@pytest.mark.drill
@pytest.mark.parametrize(
    "name",
    [
        *("logs/cold_start", "logs/log-requests", "logs/market-now", "logs/cold_start/_parts.json"),
        *("logs/market-now/_parts.json", "logs/log/part-00000.parquet", "logs/market-now/part-00001.parquet"),
        *("checkpoints/cold_start.keep", "checkpoints/market-now.keep", "checkpoints/now.json"),
        *("checkpoints/first.npz", "checkpoints/market-first.keep"),
    ],
)
@pytest.mark.parametrize("how", ["lost", "changed"])
@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
def test_what_a_stopped_run_lost_is_made_again_or_told(finished, stopped, copy, capsys, name, how):
    """Never a third thing: exit 0 and another result."""
    out = copy(stopped)
    if how == "lost":
        shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
    elif (out / name).is_dir():
        pytest.skip("a folder has no bits")
    else:
        change_a_digit(out / name)
    code = run(out.parent, out, "--resume")
    if code == 2:
        assert name.rpartition("/")[2] in capsys.readouterr().err
    else:
        assert code == 0 and results(out) == results(finished)


def test_every_bit_of_a_state_and_of_figures_is_watched(tmp_path):
    """Three of 1,100 flips in the archive's directory passed."""
    save_state(tmp_path / "s.npz", {"a": {"b": [1, 2]}, "c": 0.5})
    save_figures(tmp_path / "f.json", {"revenue": 25.61, "hours": [1.5, 2.0]})
    for file, load in ((tmp_path / "s.npz", load_state), (tmp_path / "f.json", load_figures)):
        whole, kept = file.read_bytes(), load(file)
        for at in range(len(whole)):
            data = bytearray(whole)
            data[at] ^= 1
            file.write_bytes(bytes(data))
            with pytest.raises(UserError, match="run again without --resume"):
                load(file)
        file.write_bytes(whole[:-1])
        with pytest.raises(UserError):
            load(file)
        file.write_bytes(whole)
        assert str(load(file)) == str(kept)


# The cache


def test_entries_of_the_cache_that_were_swapped_are_not_taken_for_each_other(tmp_path):
    import torch

    from cascade_sim.storage.model_store import ModelStore

    store = ModelStore(tmp_path)
    for key in ("aa", "bb"):
        store.save(key, torch.nn.Linear(2, 1), {})
    first, other = tmp_path / "aa.safetensors", tmp_path / "bb.safetensors"
    kept = first.read_bytes()
    first.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    for key in ("aa", "bb"):
        with warned("another key"):
            assert not store.load(key, torch.nn.Linear(2, 1))


def test_kept_calibrators_know_their_key_and_their_bits(tmp_path):
    import numpy as np

    from cascade_sim.cascade.links import export_calibrator, load_calibrator
    from cascade_sim.models.calibrators import CALIBRATORS

    made = CALIBRATORS["platt"].fit(np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0]))
    file = tmp_path / "c.safetensors"
    export_calibrator(made, file, "aa")
    scores = np.array([0.3])
    assert (load_calibrator(file, "aa")(scores) == load_calibrator(file)(scores)).all()
    with pytest.raises(UserError, match="another key"):
        load_calibrator(file, "bb")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(UserError, match="digest"):
        load_calibrator(file, "aa")


def test_a_file_of_another_step_or_arm_is_not_taken_for_this_one(tmp_path):
    """Swapped whole, with its own digest: a run that went on with it had other results and said nothing."""
    save_state(tmp_path / "first.npz", {"a": [1, 2]})
    save_figures(tmp_path / "first.json", {"revenue": 25.61})
    for ending, load in ((".npz", load_state), (".json", load_figures)):
        shutil.copy(tmp_path / f"first{ending}", tmp_path / f"now{ending}")
        assert load(tmp_path / f"first{ending}")
        with refused("digest", ending):
            load(tmp_path / f"now{ending}")
