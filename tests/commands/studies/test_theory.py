from dataclasses import replace

import pytest

from cascade_sim.analysis.theory.losses import LOSSES
from cascade_sim.cli import main


@pytest.mark.drill
def test_the_command_prints_the_findings_and_writes_the_figure(tmp_path, capsys):
    folder = tmp_path / "new" / "theory"
    assert main(["theory", "--out", str(folder), "--distributions", "1"]) == 0
    assert "0 above their bound" in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == [
        "regret_bounds.png",
        "regret_bounds.svg",
        "theory.json",
    ]
    assert (folder / "regret_bounds.png").read_bytes().startswith(b"\x89PNG")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["theory", "--out", str(folder), "--distributions", "1"]) == 0
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_broken_bound_is_an_exit_code(tmp_path, monkeypatch, capsys):
    kept = "pointwise squared"
    monkeypatch.setattr(
        "cascade_sim.analysis.theory.study.LOSSES", {kept: replace(LOSSES[kept], constant=lambda u, eta: 0.5)}
    )
    assert main(["theory", "--out", str(tmp_path), "--distributions", "1"]) == 1
    assert " 0 above their bound" not in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["theory", "--out", str(tmp_path / "file" / "theory")]) == 2
    assert "cannot write" in capsys.readouterr().err
