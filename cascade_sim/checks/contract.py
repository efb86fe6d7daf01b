"""How a user's class is tested: checks in order, what each of them found, and what all of them say together.

A check takes its subject and returns what it found to be fine. It raises CheckFailed for what the engine
cannot work with, and Remark for what is allowed but worth knowing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.signals import check_interrupt, is_interrupt
from cascade_sim.scenario.plugins import where_and_what
from cascade_sim.scenario.user_code.process_settings import preserve_global_state

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Finding:
    """What a check found. status: ok | note | skipped | FAILED."""

    check: str
    status: str
    text: str

    def line(self) -> str:
        """A line of a terminal: `ok       output          float32 of shape [6, 5]`."""
        return f"{self.status:<8} {self.check:<14}  {self.text}"


class Findings(list[Finding]):
    """What all checks of a class found, in their order."""

    @property
    def n_failed(self) -> int:
        return sum(finding.status == "FAILED" for finding in self)

    @property
    def ok(self) -> bool:
        """Whether the class can be used; notes are allowed."""
        return self.n_failed == 0

    def frame(self) -> pd.DataFrame:
        """A row per check: check, status, text."""
        import pandas as pd

        return pd.DataFrame([asdict(finding) for finding in self], columns=["check", "status", "text"])

    def verdict(self) -> str:
        """How many checks failed or left a note, in one line."""
        if not self.ok:
            return f"{self.n_failed} of {len(self)} checks FAILED"
        n_notes = sum(finding.status == "note" for finding in self)
        return f"all {len(self)} checks ok" + (f", {n_notes} with a note" if n_notes else "")

    def __str__(self) -> str:
        return "\n".join([*(finding.line() for finding in self), self.verdict()])

    def _repr_html_(self) -> str:
        cells = [(finding.check, finding.status, finding.text) for finding in self]
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
        )
        head = "<tr><th>check</th><th>status</th><th>found</th></tr>"
        return f"<table><caption>{escape(self.verdict())}</caption>{head}{rows}</table>"


class CheckFailed(Exception):  # noqa: N818 (a verdict, not an error of this program)
    """Raised by a check: what was expected and what was found."""


class Remark(Exception):  # noqa: N818
    """Raised by a check for what is allowed but worth knowing."""


class Subject(Protocol):
    """A class of the user that checks are run on."""

    @property
    def kind(self) -> str:
        """The name by which a scenario would ask for the class."""
        ...


S = TypeVar("S", bound=Subject)
Check = tuple[str, Callable[[S], str], tuple[str, ...]]  # name, check, names of those it needs to be ok
Listener = Callable[[Finding], Any]


def run_checks(checks: Iterable[Check[S]], subject: S, on_finding: Listener | None = None) -> Findings:
    """All checks in order; `on_finding` hears of each. What needs another to be ok is skipped without it."""
    findings = Findings()
    for name, check, needs in checks:
        text = _missing(findings, needs)
        finding = Finding(name, "skipped", text) if text else _answer(name, check, subject)
        check_interrupt()
        findings.append(finding)
        if on_finding is not None:
            on_finding(finding)
    return findings


def _missing(findings: Findings, needs: Sequence[str]) -> str:
    """Which of the checks that are needed were not ok; those that failed before those that were skipped."""
    not_ok = {f.check: f.status for f in findings if f.check in needs and f.status in ("FAILED", "skipped")}
    to_blame = [name for name, status in not_ok.items() if status == "FAILED"] or list(not_ok)
    return f"needs {' and '.join(repr(name) for name in to_blame)} to be ok" if to_blame else ""


def _answer(name: str, check: Callable[[S], str], subject: S) -> Finding:
    """Run one check; whatever the user's code raises is a failure with its place."""
    try:
        with preserve_global_state():
            return Finding(name, "ok", check(subject))
    except Remark as remark:
        return Finding(name, "note", str(remark))
    except CheckFailed as failure:
        return Finding(name, "FAILED", str(failure))
    except UserError as error:
        cause: BaseException | None = error
        while isinstance(cause, UserError):  # places are added on the way; here the class is known
            cause = cause.__cause__
        return Finding(name, "FAILED", str(error) if cause is None else where_and_what(cause, subject.kind))
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        if is_interrupt(error):
            raise
        return Finding(name, "FAILED", where_and_what(error, subject.kind))
