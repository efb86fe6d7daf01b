"""What a checker of a user's class finds, one line per check."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What a check found. status: ok | note | skipped | FAILED."""

    check: str
    status: str
    text: str

    def line(self) -> str:
        """`ok       output          float32 of shape [6, 5]`"""
        return f"{self.status:<8} {self.check:<14}  {self.text}"


class CheckFailed(Exception):  # noqa: N818 (a verdict, not an error of this program)
    """Raised by a check: what was expected and what was found."""


class Remark(Exception):  # noqa: N818
    """Raised by a check for what is allowed but worth knowing."""
