"""Input that nobody means: refused in words, in a few lines, without a traceback."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim import api
from cascade_sim.auction import run_auction
from cascade_sim.cli import main
from cascade_sim.foundation.errors import ScenarioError, UserError, shortened
from cascade_sim.ltr.files import read_file
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.yaml import MAX_TEXT
from cascade_sim.storage.checkpoints import save_state, state_errors
from cascade_sim.storage.files import parse_json
from cascade_sim.storage.folder import RunFolder, open_run, read_object, require_measures
from cascade_sim.version import SEMANTICS
from places import HANG, ROOT
from worlds.tiny_market import QUICK

TEXT = QUICK.read_text()


def refusal(capsys, words):
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err) < 2000
    return shown.err


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (f"a: &a {{{', '.join(f'k{i}: 1' for i in range(2000))}}}\nb: {{<<: [{'*a, ' * 2000}]}}\n", "values"),
        ("b:\n  <<: [" + "1, " * 5000 + "1]\n", "merges mappings only"),
        ("seed: " + "9" * 6000 + "\n", "6,002 characters"),
        ("seed: 1e400\n", "found inf"),
        ("x: " + "[" * 5000 + "]" * 5000 + "\n", "nested too deeply"),
        ("description: [" + "A" * 100_000 + "]\n", "description"),
        ("x: 1\n" * (MAX_TEXT // 4), "characters"),
    ],
    ids=["merged list", "merged numbers", "digits", "1e400", "nested", "long value", "long file"],
)  # fmt: skip
@pytest.mark.few(3)
def test_a_scenario_that_nobody_means_is_refused_in_a_few_words(more, word, tmp_path, capsys):
    file = tmp_path / "odd.yaml"
    file.write_text(TEXT + more)
    assert word in refusal(capsys, ["validate", str(file)])


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device")
def test_a_file_without_end_is_not_read_to_it(capsys):
    assert tells(refusal(capsys, ["validate", "/dev/zero"]), "/dev/zero", "device")


def test_a_value_on_the_command_line_is_not_echoed_whole(capsys):
    shown = refusal(capsys, ["validate", str(QUICK), "--set", "name=" + "A" * 100_000])
    assert "characters" in shown


def test_long_words_lines_and_lists_of_problems_are_cut():
    assert shortened("a short one") == "a short one"
    assert len(shortened("word " * 100_000)) < 4000
    assert len(ScenarioError([f"problem {i}" for i in range(100_000)]).problems) == 101
    many = ScenarioError(["word " * 1000] * 100).problems
    assert sum(map(len, many)) < 25_000 and many[-1].startswith("… and ")


@pytest.mark.drill
def test_a_long_override_leaves_room_for_what_is_wrong_with_it(capsys):
    ones = ", ".join("1" * 20_000)
    assert main(["validate", str(QUICK), "--set", f"models.logloss.features=[{ones}]"]) == 2
    shown = capsys.readouterr().err
    assert len(shown) < 30_000 and "models.logloss.features[8]: expected text" in shown


@pytest.mark.parametrize(
    "override",
    ["market={update: 1.0e-306}", "market={window: 1.0e-306}", "market={checkpoint: 1.0e+308}",
     "market={bidders: {a: {share: 1.0e+308}, b: {share: 1.0e+308}}}",
     "market={training: {interval: 1.0e-306}}"],
)  # fmt: skip
def test_times_and_shares_that_cannot_be_counted_with_are_refused(override):
    with refused("number from", kind=ScenarioError):
        load_scenario(QUICK, [override])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[" * 100_000, "nested"),
        ('{"a": ' + "9" * 6000 + "}", "6,000 digits"),
        ('{"a": 1e400}', "1e400"),
        ('{"a": 1e308}', "1e308"),
        ('{"a": NaN}', "NaN"),
        ('{"a": ', "JSON"),
    ],
    ids=["nested", "digits", "1e400", "1e308", "NaN", "cut"],
)
def test_json_that_no_result_is_made_of_is_refused(text, word, tmp_path):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(UserError, match=word) as raised:
        read_object(tmp_path / "metrics.json")
    assert len(str(raised.value)) < 500
    assert parse_json('{"a": [1, 2.5, null, 9223372036854775807]}') == {"a": [1, 2.5, None, 2**63 - 1]}


def finished(path, metrics, **manifest):
    with RunFolder.create(path) as run:
        whole = {
            "name": "a",
            "semantics": SEMANTICS,
            "scenario_hash": "abc",
            "status": "complete",
            **manifest,
        }
        run.write_json("manifest.json", whole)
        run.write_json("metrics.json", metrics)
    return path


@pytest.mark.parametrize(
    "arms",
    [5, {"a": 5}, {"a": {"ctr": "x"}}, {"a": {"ctr": {"value": [1]}}}, {"a": {"ctr": {"lift": {"low": ""}}}}],
)
def test_measures_of_the_wrong_type_are_refused(arms, tmp_path):
    run = open_run(finished(tmp_path / "run", {"arms": arms, "baseline": "a"}))
    with refused("metrics.json:", "object"):
        require_measures(run)


@pytest.mark.parametrize(("key", "value"), [("packages", [1]), ("seconds", 5), ("seeds", "3"), ("name", {})])
def test_a_manifest_of_the_wrong_type_is_refused(key, value, tmp_path):
    with pytest.raises(UserError, match=rf"manifest\.json: {key} must be"):
        open_run(finished(tmp_path / "run", {"arms": {}}, **{key: value}))


def test_a_state_that_is_not_this_runs_is_refused(tmp_path):
    file = tmp_path / "checkpoints" / "a.npz"
    save_state(file, {"other": np.ones(3)})
    for fault in (KeyError("clock"), ValueError("too many"), TypeError("not a mapping")):
        with (
            refused("state", "--resume"),
            state_errors(file),
        ):
            raise fault


def test_a_note_of_weights_that_is_no_object_is_a_damaged_file(tmp_path):
    import torch
    from safetensors.torch import save_file

    from cascade_sim.storage.model_store import load_file

    net = torch.nn.Linear(2, 1)
    save_file(net.state_dict(), tmp_path / "net.safetensors", {"cascade_sim": json.dumps([1])})
    with pytest.raises(ValueError, match="no object"):
        load_file(tmp_path / "net.safetensors", net)


def test_features_that_share_nothing_with_the_training_file_are_refused(tmp_path):
    for name, feature in (("train", 1), ("test", 7)):
        lines = (f"{i % 2} qid:{i // 4} {feature}:0.5 {feature + 1}:{i}\n" for i in range(12))
        (tmp_path / name).write_text("".join(lines))
    columns = read_file(tmp_path / "train").columns
    with refused("none", "2 features"):
        read_file(tmp_path / "test", columns)


def test_a_rate_that_no_net_learns_by_is_refused(tmp_path, capsys):
    words = [word for part in ("train", "valid", "test") for word in (f"--{part}", str(tmp_path / part))]
    for part in ("train", "valid", "test"):
        (tmp_path / part).write_text("1 qid:1 1:1\n0 qid:1 1:2\n")
    assert "--learning-rate" in refusal(capsys, ["ltr", *words, "--learning-rate", "1e300"])


@pytest.mark.parametrize(
    "call",
    [
        lambda: api.load_scenario(np.arange(3)),
        lambda: api.load_scenario("quick", seed=np.arange(3)),
        lambda: api.run("quick", seeds=np.arange(2)),
        lambda: api.whatif("runs/none", {}, requests=np.arange(3)),
        lambda: api.trace("runs/none", np.arange(3)),
        lambda: api.landscape("runs/none", np.arange(2)),
        lambda: api.whatif("runs/none", {}, arm=np.array(["a", "b"])),
        lambda: api.whatif("runs/none", {}, requests=True),
    ],
)
def test_an_array_where_one_value_is_meant_is_refused(call):
    with pytest.raises(UserError, match="expected"):
        call()


def test_arrays_and_numbers_of_numpy_are_lists_and_numbers():
    scenario = api.load_scenario("quick", seed=np.int64(3), set=np.array(["cascade.slots=2"]))
    assert (scenario.seed, scenario.cascade.slots) == (3, 2)
    changed = {"slot_effects": np.array([1.0, 0.5, 0.25, 0.2, 0.1]), "users": np.int32(10)}
    data = {"name": "a", "arms": {"a": {}}, "world": changed}
    with pytest.raises(ScenarioError) as raised:  # it names no models
        api.load_scenario(data)
    assert not any("slot_effects" in line or "users" in line for line in raised.value.problems)


@pytest.mark.parametrize(
    ("bid", "pctr", "word"),
    [([1.0], [2.0], "at most 1"), (["1"], [0.1], "real numbers"), ([1j], [0.1], "real numbers"),
     ([1.0], [0.1 + 0j], "real numbers")],
)  # fmt: skip
def test_an_auction_of_no_bids_or_no_probabilities_is_refused(bid, pctr, word):
    with pytest.raises(ValueError, match=word):
        run_auction(bid, pctr, slots=1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize("command", [["schema"], ["validate", "scenarios/quick.yaml"], ["--help"]])
def test_output_onto_a_full_disk_is_one_line_and_no_success(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cascade_sim", *command],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=HANG,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot") and done.stderr.count("\n") == 1


def test_a_backend_that_matplotlib_does_not_know_hinders_no_figure():
    code = (
        "from cascade_sim.analysis.report.figures.style import blank, style\n"
        "with style('a'):\n    blank(2.0)\n"
        "import os; print(os.environ['MPLBACKEND'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=HANG,
        env={**os.environ, "MPLBACKEND": "nonsense"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "nonsense\n"), done.stderr
