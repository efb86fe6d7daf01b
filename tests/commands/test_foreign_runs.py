"""A run folder that somebody sent, with code in it: no command runs it unasked.

The commands are those of the command line, and their arguments what its parser knows of them, so that a new
one is tried as well.
"""

import json
from contextlib import suppress
from pathlib import Path

import click
import pytest

from answers.told import tells
from cascade_sim import api
from cascade_sim.cli import COMMANDS, cli, main
from cascade_sim.commands import options
from cascade_sim.foundation.errors import UserError
from cascade_sim.study import run as study
from worlds.foreign_run import CLASSES, MARK, NAMED, NET, SCENARIO, marking, sent

# What a command needs besides a run, by the name of the parameter.
GIVEN = {
    "request": "0",
    "ad": "0",
    "changes": "auction.reserve_cpc=0.1",
    "over": "cascade.slots=2,3",
    "seeds": "2",
    "port": "0",
}
# Commands that answer from a run, and those of them that serve its requests again with its models.
READ = ("report", "baseline", "check", "compare")
PAGE = "serve"  # opens runs when its page is looked at, and names those that it cannot open
SERVE = ("trace", "critical-bids", "landscape", "whatif", "off-policy", "export-logs")


def command_named(name):
    with click.Context(cli) as context:
        found = cli.get_command(context, name)
    assert found is not None
    return found


def takes_something(name):
    return any(isinstance(parameter, click.Argument) for parameter in command_named(name).params)


TAKING = [name for name in COMMANDS if takes_something(name)]


def words_for(name, run, folder):
    """The command with the run as every argument, and what it cannot do without."""
    words = [name]
    for parameter in command_named(name).params:
        if isinstance(parameter, click.Argument):
            words += [str(run)] * (2 if parameter.nargs == -1 else 1)
        elif parameter.required or parameter.name in GIVEN or parameter.name == "out":
            here = {"out": str(folder / f"out-{name}"), "against": str(folder / "baseline.json"), **GIVEN}
            assert parameter.name in here, f"{name} {parameter.opts[0]}: say here what to give it"
            words += [parameter.opts[0], here[parameter.name]]
    return words


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where two runs were made: one with built-in classes, one with classes of somebody's own."""
    folder = tmp_path_factory.mktemp("sender")
    (folder / "plain.yaml").write_text(json.dumps(SCENARIO))
    for name, text in CLASSES.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "write_report", lambda *arguments, **options: None)
        patch.chdir(folder)
        common = ["run", "plain.yaml", "--workers", "1", "--quiet"]
        assert main([*common, "--out", "plain"]) == 0
        assert main([*common, "--out", "own", *(word for text in NAMED for word in ("--set", text))]) == 0
    return folder


def foreign(home, folder, kind):
    """A folder as it might be sent, and the mark that its code would leave."""
    mark = folder / MARK
    evil = {name: marking(text, mark) for name, text in CLASSES.items()}
    net = marking(NET, mark)
    kept = {"models/pre.py": net, "models/rank.py": net}
    if kind == "planted beside built-in classes":
        return sent(home / "plain", folder / "run", [], {**kept, **evil}, sealed=False)
    if kind == "planted and sealed":
        return sent(home / "plain", folder / "run", [], {**kept, **evil}, sealed=True)
    if kind == "its own models":
        return sent(home / "own", folder / "run", [], {**kept, **evil}, sealed=True)
    if kind == "files that its scenario names":
        changes = [f"models.{name}.kind=evil_net.py:Net" for name in ("pre", "rank")]
        changes += ["market.bidders.own.kind=own.py:Own", "market.users.click_model=users.py:Users"]
        files = {"evil_net.py": net, **evil}
        run = sent(home / "own", folder / "run", [], files, sealed=False)
        for name in ("pre", "rank"):
            (run / "models" / f"{name}.py").unlink()
        return sent(run, folder / "again", changes, {}, sealed=True)
    # Wording: a name of this file's own KINDS.
    assert kind == "modules that its scenario names"
    (folder / "evil_module.py").write_text(net)
    changes = [f"models.{name}.kind=evil_module:Net" for name in ("pre", "rank")]
    return sent(home / "own", folder / "run", changes, {}, sealed=True)


KINDS = (
    *("planted beside built-in classes", "planted and sealed", "its own models"),
    *("files that its scenario names", "modules that its scenario names"),
)


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.drill) for kind in KINDS[:2]] + [*KINDS[2:]])
def received(request, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in CLASSES.items():  # the receiver has files of the same names
        (tmp_path / name).write_text(text)
    run = foreign(home, tmp_path, request.param)
    assert main(["baseline", str(home / "plain"), "--out", str(tmp_path / "baseline.json")]) == 0
    return request.param, run


def test_every_command_that_takes_a_run_is_among_those_tried():
    assert {*READ, *SERVE} <= set(TAKING)
    trusting = {name for name in COMMANDS if any(p.name == "trust" for p in command_named(name).params)}
    assert trusting == {*SERVE, PAGE}


def test_no_command_runs_the_code_of_a_foreign_run_unasked(received, tmp_path, capsys, monkeypatch):
    kind, run = received
    monkeypatch.setattr("cascade_sim.commands.studies.report.write_report", lambda *a, **o: "report")
    looked_at = []

    def look(live, door, listener):
        for number, offered in enumerate(live.runs.offered):
            with suppress(UserError):
                live.runs.session(number)
            looked_at.append(offered.error)

    monkeypatch.setattr("cascade_sim.live.server.serve_page", look)
    for name in TAKING:
        code = main(words_for(name, run, tmp_path))
        said = capsys.readouterr().err
        assert not (tmp_path / MARK).exists(), name
        if name in READ or (name in SERVE and kind.startswith("planted")):
            assert code in (0, 1), (name, said)
        elif name in SERVE or (name == PAGE and not kind.startswith("planted")):  # no run opens
            assert code == 2 and "--trust" in said and "not done unasked" in said, (name, said)
    assert looked_at == ([None, None] if kind.startswith("planted") else [])


@pytest.mark.drill
def test_nor_does_a_run_into_its_folder(received, home, tmp_path, capsys):
    kind, run = received
    for more in (["--resume"], []):
        main(["run", str(home / "plain.yaml"), "--out", str(run), "--workers", "1", "--quiet", *more])
        assert not (tmp_path / MARK).exists()


@pytest.mark.drill
@pytest.mark.parametrize("received", KINDS[2:], indirect=True)
@pytest.mark.parametrize("name", SERVE)
def test_who_trusts_it_gets_it(received, tmp_path, capsys, name):
    """Where the code is what the manifest says: what was not of the run is refused even so."""
    kind, run = received
    code = main([*words_for(name, run, tmp_path), "--trust"])
    said = capsys.readouterr().err
    if kind == "its own models":
        assert (tmp_path / MARK).exists() and code in (0, 1), said
    else:  # their digests are not in the manifest's list of the run's code
        assert not (tmp_path / MARK).exists() and code == 2 and tells(said, "not", "the run")


@pytest.mark.drill
@pytest.mark.parametrize("received", KINDS[:2], indirect=True)
@pytest.mark.parametrize("name", SERVE)
def test_trust_does_not_run_what_the_scenario_does_not_ask_for(received, tmp_path, capsys, name):
    _, run = received
    assert main([*words_for(name, run, tmp_path), "--trust"]) in (0, 1)
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize("received", KINDS[2:3], indirect=True)
def test_a_kept_file_that_was_changed_is_refused_even_if_trusted(received, tmp_path, capsys):
    _, run = received
    (run / "models" / "rank.py").write_text((run / "models" / "rank.py").read_text() + "# more\n")
    assert main([*words_for("trace", run, tmp_path), "--trust"]) == 2
    assert tells(capsys.readouterr().err, "rank.py", "the run wrote")


@pytest.mark.parametrize("received", KINDS[2:3], indirect=True)
@pytest.mark.parametrize("answer", [False, True])
def test_on_a_terminal_whoever_sits_there_is_asked_once(received, tmp_path, monkeypatch, capsys, answer):
    class Terminal:
        def isatty(self):
            return True

    _, run = received
    asked = []
    monkeypatch.setattr(options, "sys", type("Sys", (), {"stdin": Terminal(), "stderr": Terminal()}))
    monkeypatch.setattr(click, "confirm", lambda text, **more: asked.append(text) or answer)
    code = main(words_for("trace", run, tmp_path))
    assert len(asked) == 1 and str(run) in asked[0] and "net.py:Net" in asked[0]
    assert (tmp_path / MARK).exists() == answer and (code == 2) == (not answer)


@pytest.mark.parametrize("received", KINDS[2:3], indirect=True)
def test_from_python_it_is_an_argument_and_what_one_ran_oneself_has_it(received, home, tmp_path, monkeypatch):
    _, run = received
    asked = {
        "trace": lambda of, **more: api.trace(of, 0, **more),
        "landscape": lambda of, **more: api.landscape(of, 0, **more),
        "whatif": lambda of, **more: api.whatif(of, {"auction.reserve_cpc": 0.1}, **more),
        "off_policy": lambda of, **more: api.off_policy(of, {"auction.reserve_cpc": 0.1}, **more),
    }
    opened = api.open_run(run)
    for question in asked.values():
        for of in (run, opened):
            with pytest.raises(UserError, match="trust=True"):
                question(of)
    assert not (tmp_path / MARK).exists()
    for question in asked.values():
        question(api.open_run(run, trust=True))
        question(run, trust=True)
        assert (tmp_path / MARK).exists()
        Path(tmp_path / MARK).unlink()
    monkeypatch.chdir(home)
    monkeypatch.setattr(study, "write_report", lambda *arguments, **options: None)
    own = api.run("plain.yaml", out=tmp_path / "mine", set=NAMED)
    assert api.trace(own, 0).trace["same_as_log"]
