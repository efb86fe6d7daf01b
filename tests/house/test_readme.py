"""What the README shows is true: links, commands, examples, the error message."""

import re
import shutil

import pytest

from cascade_sim.cli import COMMANDS
from cascade_sim.errors import ScenarioError
from cascade_sim.scenario.file import load_scenario
from places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, with_words: str = "") -> str:
    """The first example in a language, or the first that has these words."""
    found = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return next(text for text in found if with_words in text)


def test_every_link_and_named_file_exists():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    named = re.findall(
        r"(?:scenarios|cascade_sim|models|agents|analysis)/[\w./]+\.(?:yaml|py|csv|png)", README
    )
    missing = [name for name in {*links, *named} if not (ROOT / name).exists()]
    assert links and not missing


def test_every_command_is_described_and_every_described_command_exists():
    table = README[README.index("## Commands") : README.index("## What a study does")]
    described = set(
        re.findall(r"`([a-z-]+)[ `]", "\n".join(line for line in table.splitlines() if line[:2] == "| "))
    )
    assert set(COMMANDS) <= described


def test_make_knows_the_two_commands():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_the_shortest_scenario_worth_running_is_valid(tmp_path):
    file = tmp_path / "wider.yaml"
    file.write_text(block("yaml"))
    assert list(load_scenario(file).arms) == ["today", "wider", "squashed"]


def test_the_model_example_passes_the_checker(tmp_path):
    from cascade_sim.checks.model import check_model

    file = tmp_path / "mine.py"
    file.write_text("import torch\n\n\n" + block("python"))
    assert check_model(f"{file}:MyPreRanker", features=("user", "quality", "G1")).ok


def test_the_error_shown_is_the_error_given(tmp_path):
    shown = re.search(r"error: scenarios/ads\.yaml:(\S+) (.*)", README)
    assert shown is not None
    text = (ROOT / "scenarios" / "ads.yaml").read_text()
    file = tmp_path / "ads.yaml"
    file.write_text(text.replace("fusion: ecpm, size: 64}", "fusion: ecpm, size: 5}"))
    with pytest.raises(ScenarioError) as refused:
        load_scenario(file)
    assert refused.value.problems == (f"{file}:{shown[1]} {shown[2]}",)


def test_no_placeholder_is_left():
    assert not re.search(r"^[A-Z_]{6,}$", README, re.MULTILINE)


def test_the_user_example_runs_and_does_what_it_expects(tmp_path):
    import numpy as np

    from cascade_sim.market.audience import build_click_model
    from cascade_sim.scenario.market import Users

    (tmp_path / "one_look.py").write_text("import numpy as np\n\n\n" + block("python", "class OneLook"))
    users = Users(click_model="one_look.py:OneLook", options={"chance": 0.4})
    model, n = build_click_model(users, np.ones(2), tmp_path), 50_000
    ctr, shown = np.tile([0.5, 0.3], (n, 1)), np.tile([True, False], (n, 1))
    clicked, _ = model.clicks(ctr, shown, *np.random.default_rng(0).random((2, n, 2)))
    assert model.expected(ctr, shown)[0].tolist() == [0.4 * 0.5, 0.0]
    assert clicked.mean(axis=0) == pytest.approx([0.2, 0.0], abs=0.01)


def test_the_python_example_gives_frames(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cascade_sim.analysis.report.page.draw_all", lambda metrics: {})
    (tmp_path / "scenarios").mkdir()
    shutil.copy(ROOT / "scenarios" / "quick.yaml", tmp_path / "scenarios")
    for knob in ("phases.bootstrap=512", "phases.log=1024", "phases.shadow=256", "phases.evaluate=256"):
        text = (tmp_path / "scenarios" / "quick.yaml").read_text()
        name, value = knob.split(".")[1].split("=")
        (tmp_path / "scenarios" / "quick.yaml").write_text(re.sub(rf"{name}: \d+", f"{name}: {value}", text))
    exec(compile(block("python", "import compare, run, whatif"), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "rcs" in printed and "runs/squashed" in printed
    assert (tmp_path / "runs" / "base" / "report.html").is_file()


def test_the_five_lines_that_guard_revenue_are_the_shipped_ones():
    shipped = (ROOT / "scenarios" / "example_test_revenue.py").read_text()
    lines = [
        line
        for line in block("python", "auction_revenue").splitlines()
        if line.startswith(("import", "    "))
    ]
    assert lines and all(line in shipped for line in lines)
