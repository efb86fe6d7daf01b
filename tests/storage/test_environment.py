"""Which processor and packages made a run, and how two runs differ in them."""

import platform

from answers.told import tells
from cascade_sim.storage.environment import PACKAGES, model_name, stack, stack_notes

HERE = {"packages": {"python": "3.11.7", "numpy": "2.4.6"}, "processor": {"model": "A", "torch": "AVX2"}}


def test_the_processor_and_what_each_library_uses_of_it_are_told():
    here = stack()
    assert set(here["processor"]) == {"machine", "model", "torch", "numpy", "numba"}
    assert all(here["processor"][name] for name in ("machine", "torch", "numba"))
    assert set(here["packages"]) == {"python", *PACKAGES}


def test_nobody_asks_for_the_name_of_the_machine(monkeypatch):
    def asked(*_):
        raise AssertionError

    monkeypatch.setattr("platform.node", asked)
    monkeypatch.setattr("socket.gethostname", asked)
    assert stack()["processor"]["machine"]


def test_the_model_is_read_where_the_system_says_it(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel\t\t: 1\nmodel name\t: Quick 9: v2\n\nmodel name\t: Quick 9: v2\n")
    assert model_name(file) == "Quick 9: v2"
    assert model_name(tmp_path / "none") == platform.processor()


def test_two_runs_are_told_apart_by_processor_and_packages():
    assert stack_notes(HERE, HERE) == []
    slower = {**HERE, "processor": {"model": "B", "torch": "AVX2"}}
    (note,) = stack_notes(HERE, slower)
    assert tells(note, "processor", "A", "B") and "AVX2" not in note
    older = {**slower, "packages": {"python": "3.11.7", "numpy": "2.1.0", "scipy": "1.0"}}
    packages, _ = stack_notes(HERE, older)
    assert "numpy 2.4.6, then 2.1.0" in packages and "scipy ?, then 1.0" in packages


def test_what_a_side_does_not_say_is_no_difference():
    assert stack_notes({"packages": HERE["packages"]}, HERE) == []
    assert stack_notes({}, HERE) == stack_notes(HERE, {}) == []


def test_of_many_differences_a_few_are_named():
    many = {"packages": {f"p{i}": "1" for i in range(7)}}
    (note,) = stack_notes(many, {"packages": {f"p{i}": "2" for i in range(7)}})
    assert "p3 1, then 2" in note and "p4" not in note and "and 3 more" in note
