"""`init`: what it creates works as it is."""

import ast

from cascade_sim.cli import main
from cascade_sim.commands.studies.init import TEMPLATES
from cascade_sim.scenario.file import load_scenario
from places import SCENARIOS
from worlds.tiny_market import TINY


def test_files_are_the_shipped_templates_and_each_says_what_it_is(tmp_path, capsys):
    assert main(["init", str(tmp_path / "my")]) == 0
    shown = capsys.readouterr().out
    assert "python -m cascade_sim run scenario.yaml" in shown and "pytest" in shown
    # Wording: every template begins with the same two questions.
    for name, template in TEMPLATES.items():
        text = (tmp_path / "my" / name).read_text()
        assert text == (SCENARIOS / template).read_text()
        head = ast.get_docstring(ast.parse(text)) if name.endswith(".py") else text.replace("# ", "")
        assert head.startswith("What this is: ") and "What to do with it: " in head


def test_nothing_is_replaced(tmp_path, capsys):
    (tmp_path / "my_user.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "my_user.py is there already" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["my_user.py"]
    assert main(["init", str(tmp_path / "my_user.py")]) == 2


def test_the_study_runs_with_the_model_the_bidder_and_the_users_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    scenario = load_scenario("scenario.yaml")
    assert scenario.market.users.click_model == "my_user.py:RelevanceSeeker"
    assert "my_bidder.py:Frugal" in [bidder.kind for bidder in scenario.market.bidders.values()]
    monkeypatch.setattr("cascade_sim.study.run.write_report", lambda *_: None)  # drawn in test_study.py
    words = [word for change in (*TINY, "market.days=0.05") for word in ("--set", change)]
    assert main(["run", "scenario.yaml", "--workers", "1", "--quiet", *words]) == 0
    assert (tmp_path / "runs" / "my_model" / "metrics.json").is_file()
