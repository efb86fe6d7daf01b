"""From a bidder's kind in the scenario to its class, and from the class to a bidder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.agents.bidding import Portfolio
from cascade_sim.errors import UserError
from cascade_sim.scenario.plugins import check_reference, find_model_file
from cascade_sim.suggest import did_you_mean, unknown_name

METHODS = ("bids", "participation", "observe", "state", "restore")


def check_bidder_reference(kind: str, home: Path = Path(".")) -> None:
    """A UserError where a kind names no bidder, file or class. A file is parsed, never imported."""
    where, _, name = kind.rpartition(":")
    if not where:
        find_bidder(kind, home)  # built in, or an error that says what there is
        return
    if not name.isidentifier():
        raise UserError(f"{kind}: '{name}' is not the name of a class")
    problem = check_reference(kind, home).partition("; expected")[0]
    if problem and "is not valid Python" not in problem:  # that is shown with its line, when it is imported
        raise UserError(f"{kind}: {problem}")


def find_bidder(kind: str, home: Path = Path(".")) -> type:
    """The class of a kind: built in, `path/to/file.py:Class`, or `package.module:Class`.

    A path is looked for below the working directory, then beside the scenario (`home`).
    """
    if kind in BIDDERS:
        return BIDDERS[kind]
    where, _, name = kind.rpartition(":")
    if not where:
        if kind.endswith(".py"):
            raise UserError(f"'{kind}' names no class; write {kind}:ClassName")
        raise UserError(f"{unknown_name('bidder', kind, BIDDERS)}, or path/to/file.py:Class")
    file = find_model_file(kind, home)
    if where.endswith(".py") and file is None:
        raise UserError(f"no file '{where}' in the working folder or beside the scenario")
    from cascade_sim.training.modules import _load_file, _load_module, where_and_what

    try:
        module = _load_module(where) if file is None else _load_file(file)
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"bidder {kind!r} cannot be imported: {where_and_what(error, kind)}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        hint = did_you_mean(name, classes)
        raise UserError(f"{where} has no class '{name}'{hint}; it has: {', '.join(classes) or 'none'}")
    return found


def build_bidder(
    kind: str, portfolio: Portfolio, options: Mapping[str, Any] | None = None, home: Path = Path(".")
) -> Any:
    """A bidder for the advertisers of a portfolio; `options` are keywords of its class."""
    cls = find_bidder(kind, home)
    try:
        return cls(portfolio, **(options or {}))
    except Exception as error:  # the user's code may raise anything
        from cascade_sim.training.modules import where_and_what

        is_ours = kind in BIDDERS and isinstance(error, (ValueError, TypeError))
        what = str(error) if is_ours else where_and_what(error, kind)
        raise UserError(f"bidder {kind!r}: {what}") from error
