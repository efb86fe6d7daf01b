"""The report as files of a run folder."""

import os

from answers.told import refused
from cascade_sim.study.report import write_report


def test_figures_are_not_written_through_a_link(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (run / "figures").symlink_to(elsewhere)
    with refused("figures", "link"):
        write_report(run, {}, {}, "")
    assert os.listdir(elsewhere) == [] and os.listdir(run) == ["figures"]
