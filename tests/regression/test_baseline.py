"""Baseline files: small, the same again, and refused with key and reason when damaged."""

import json
from dataclasses import replace

import pytest

from answers.told import refused, tells
from cascade_sim.cli import main
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.regression.baseline import baseline_text, differences, read_baseline, write_baseline
from cascade_sim.regression.blocks import Blocks
from worlds.guarded_market import measure_plain, plain_run


def test_a_run_and_its_scenario_are_identical_to_the_baseline_of_the_run(home, tmp_path, capsys):
    kept = str(tmp_path / "from_run.json")
    assert main(["baseline", str(plain_run()), "--out", kept]) == 0
    assert "kB)" in capsys.readouterr().out
    for what in (plain_run(), home / "plain.yaml"):
        assert main(["check", str(what), "--against", kept, "--quiet"]) == 0
        assert "identical: all 18 metrics" in capsys.readouterr().out
    assert main(["check", str(plain_run()), "--against", kept, "--traffic-sample", "1"]) == 2
    assert "--traffic-sample: " in capsys.readouterr().err


def test_a_baseline_is_small_readable_and_the_same_bytes_again(file, measured):
    text = file.read_text()
    assert len(text) < 100_000
    assert text == baseline_text(measured)
    data = json.loads(text)
    assert data["semantics"] and data["seed"] == 1 and set(data["arms"]) == {"production", "cheap"}


def test_many_arms_share_the_room_by_halving_the_groups(measured):
    arm = measured.blocks.arms["production"]
    many = Blocks(512, 256, {f"arm{i}": arm for i in range(12)})
    data = json.loads(baseline_text(replace(measured, blocks=many)))
    assert data["groups"] == 128  # 12 * 128 = 6 * 256
    assert len(data["arms"]["arm0"]["sums"]["revenue"]) == 128
    assert sum(data["arms"]["arm0"]["sums"]["requests"]) == 512


def test_a_baseline_of_a_handful_of_requests_is_refused(home, tmp_path):
    few = measure_plain(tmp_path, "phases.evaluate=5")
    with refused("phases.evaluate", 5, 8):
        baseline_text(few)


def broken(data, path, value):
    *way, last = path.split("/")
    node = data
    for key in way:
        node = node[key]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return data


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("kind", "something", "kind 'something' cascade_sim baseline"),
        ("format", 2, "format 2 1"),
        ("semantics", 1, "semantics 1 version"),
        ("semantics", "x", 'semantics "x" integer'),
        ("groups", 100, "groups 100 8 256"),
        ("arms", [], "arms list object"),
        ("arms", {}, "arms is empty"),
        (
            "arms/production/sums/clicks",
            [1, 2],
            "arms.production.sums.clicks 2 256",
        ),
        ("arms/production/sums/clicks", KeyError, "arms.production.sums.clicks missing"),
        ("arms/production/values/rpm", "1", 'arms.production.values.rpm "1" null'),
        ("arms/production/values/rmp", 1.0, "'rmp' 'rpm'?"),
        ("arms/production/values/rpm", 1.0, "arms.production.values.rpm 1 sums"),
        ("scenario/world/ads", 601, "traffic_hash is"),
        ("seeds", 1, "'seeds' 'seed'?"),
    ],
)
def test_a_damaged_baseline_is_refused_with_the_key_and_what_was_expected(file, tmp_path, path, value, words):
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(broken(json.loads(file.read_text()), path, value)))
    with pytest.raises(UserError) as error:
        read_baseline(bad)
    assert tells(error.value, bad, *words.split())


def test_one_changed_digit_of_a_sum_is_refused_with_how_to_make_the_file_anew(file, home, tmp_path, capsys):
    data = json.loads(file.read_text())
    data["arms"]["production"]["sums"]["revenue"][7] *= 1 + 1e-9  # too little to show in any value
    (tmp_path / "bad.json").write_text(json.dumps(data))
    assert main(["check", str(plain_run()), "--against", str(tmp_path / "bad.json")]) == 2
    shown = capsys.readouterr().err
    assert "bad.json: seal" in shown and "cascade_sim baseline RUN" in shown


def test_a_baseline_of_an_earlier_version_is_read_with_a_note(file, tmp_path):
    data = json.loads(file.read_text())
    data.pop("seal", None)
    (tmp_path / "old.json").write_text(json.dumps(data))
    with pytest.warns(Notice, match="old.json has no seal"):
        old = read_baseline(tmp_path / "old.json")
    assert old.scenario_hash == data["scenario_hash"]


def test_a_metric_that_had_another_name_is_read_by_its_present_one(file, tmp_path):
    data = json.loads(file.read_text())
    data.pop("seal", None)
    for arm in data["arms"].values():
        arm["values"]["welfare_efficiency"] = arm["values"].pop("welfare_vs_oracle")
    (tmp_path / "old.json").write_text(json.dumps(data))
    with pytest.warns(Notice, match="no seal"):
        old = read_baseline(tmp_path / "old.json")
    assert old.blocks.arms["production"].values == read_baseline(file).blocks.arms["production"].values


def test_another_layout_of_the_same_values_is_the_same_baseline(file, tmp_path):
    (tmp_path / "flat.json").write_text(json.dumps(json.loads(file.read_text()), sort_keys=True))
    assert read_baseline(tmp_path / "flat.json").traffic == read_baseline(file).traffic


def test_a_negative_sum_is_named_with_its_place(file, tmp_path):
    data = json.loads(file.read_text())
    data["arms"]["production"]["sums"]["impressions"][7] = -1
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with refused("sums.impressions[7]", -1, 0):
        read_baseline(tmp_path / "bad.json")


def test_a_file_that_is_no_baseline_is_not_replaced(measured, tmp_path):
    mine = tmp_path / "scenario.yaml"
    mine.write_text("name: mine")
    with refused("scenario.yaml", "no baseline"):
        write_baseline(measured, mine)
    assert mine.read_text() == "name: mine"
    mine.unlink()
    for _ in range(2):  # a baseline is made anew
        write_baseline(measured, mine)


def test_a_file_that_is_no_json_is_refused_with_line_and_column(tmp_path, capsys, home):
    (tmp_path / "bad.json").write_text('{\n "kind": oops\n}')
    assert main(["check", str(home / "plain.yaml"), "--against", str(tmp_path / "bad.json")]) == 2
    assert "bad.json:2:10 is not JSON" in capsys.readouterr().err
    assert main(["check", str(home / "plain.yaml"), "--against", str(tmp_path / "none.json")]) == 2
    assert tells(capsys.readouterr().err, "none.json", "`cascade_sim baseline RUN")


def test_differences_name_every_leaf_by_its_path():
    before, now = {"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 1, "c": [2]}, "e": 3}
    assert differences(before, now) == [("a.c", [1], [2]), ("d", 2, None), ("e", None, 3)]
