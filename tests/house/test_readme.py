"""What the README says beside its code blocks, which test_docs.py tries: length, commands, the error."""

import re

import numpy as np
import pytest

from cascade_sim.cli import COMMANDS
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.market.visits import build_click_model
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.market import Users
from house.blocks import blocks
from places import ROOT

FILE = ROOT / "README.md"
README = FILE.read_text(encoding="utf-8")
MAX_WORDS = 1300


def block(page, language, with_words=""):
    """The first block in a language that has these words."""
    return next(b.text for b in blocks(page) if b.language == language and with_words in b.text)


def test_it_is_read_in_five_minutes():
    assert len(README.split()) <= MAX_WORDS


def test_the_two_commands_are_the_first_block_and_what_ci_calls():
    assert [words[:2] for words in blocks(FILE)[0].commands()] == [["make", "run"], ["make", "test"]]
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_command_it_names_exists():
    named = re.findall(r"python -m\s+cascade_sim ([a-z-]+)", README)
    assert len(set(named)) > 5 and set(named) - {"--help"} <= set(COMMANDS)


def test_the_shortest_scenario_worth_running_has_its_arms(tmp_path):
    file = tmp_path / "wider.yaml"
    file.write_text(block(FILE, "yaml"))
    assert list(load_scenario(file).arms) == ["production", "wider", "squashed"]


def test_the_error_shown_is_the_error_given(tmp_path):
    shown = re.search(r"error: scenarios/ads\.yaml:(\S+) (.*)", README)
    assert shown is not None
    text = (ROOT / "scenarios" / "ads.yaml").read_text()
    file = tmp_path / "ads.yaml"
    file.write_text(text.replace("fusion: ecpm, size: 64}", "fusion: ecpm, size: 5}"))
    with pytest.raises(ScenarioError) as refused:
        load_scenario(file)
    assert refused.value.problems == (f"{file}:{shown[1]} {shown[2]}",)


def test_the_five_lines_that_guard_revenue_are_the_shipped_ones():
    shipped = (ROOT / "scenarios" / "example_test_revenue.py").read_text()
    for page in (FILE, ROOT / "docs" / "how_to" / "revenue_guard.md"):
        text = block(page, "python", "auction_revenue")
        lines = [line for line in text.splitlines() if line.startswith(("import", "    "))]
        assert lines and all(line in shipped for line in lines)


def test_the_users_of_the_docs_do_what_they_expect(tmp_path):
    page = ROOT / "docs" / "how_to" / "custom_users.md"
    (tmp_path / "one_look.py").write_text(block(page, "python", "class OneLook"))
    users = Users(click_model="one_look.py:OneLook", options={"chance": 0.4})
    model, n = build_click_model(users, np.ones(2), tmp_path), 50_000
    ctr, shown = np.tile([0.5, 0.3], (n, 1)), np.tile([True, False], (n, 1))
    clicked, _ = model.clicks(ctr, shown, *np.random.default_rng(0).random((2, n, 2)))
    assert model.expected(ctr, shown)[0].tolist() == [0.4 * 0.5, 0.0]
    assert clicked.mean(axis=0) == pytest.approx([0.2, 0.0], abs=0.01)
