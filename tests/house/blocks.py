"""The code blocks of the README and of docs/, and how each is tried.

The words behind a fence's language say how; nobody sees them on the page:

    ```shell             commands, run one after the other in a folder with scenarios/ and runs/quick
    ```shell parse       too dear: the command line is read and its scenario checked, and nothing is run
    ```python            run; names live on to the next block of the page
    ```python parse      too dear: compiled
    ```yaml              a scenario, checked
    ```yaml part         some keys of one, checked on top of scenarios/quick.yaml
    ```… file=NAME       also written as that file, for the blocks below it
    ```text              what a program prints; not tried
    ```text printed      put there when the site is built, from the shell block above (docs/printed.py):
                         lines=N keeps the first, exit=N is the code with which the command ends

`python tests/house/blocks.py` counts them.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "made" not in path.parts),
]
LANGUAGES = {"shell": {"parse"}, "python": {"parse"}, "yaml": {"part"}, "text": {"printed"}}
FENCE = re.compile(
    r"^(?P<marks>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=marks)`*[ ]*$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, how it is tried, and what it says."""

    page: Path
    line: int
    language: str
    words: frozenset[str]
    file: str  # that it is written to; empty: none
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def how(self) -> str:
        """run, checked (a scenario, or a block too dear to run), or shown."""
        if self.language == "text":
            return "shown"
        return "checked" if "parse" in self.words or self.language == "yaml" else "run"

    def commands(self) -> list[list[str]]:
        """The command lines of a shell block, as words, comments left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page; directives of the site ({toctree} and the like) are none."""
    text = page.read_text(encoding="utf-8")
    return [
        made(page, text.count("\n", 0, match.start()) + 1, match["info"].split(), match["text"])
        for match in FENCE.finditer(text)
        if not match["info"].startswith("{")
    ]


def made(page: Path, line: int, info: list[str], text: str) -> Block:
    """The block of a fence; ValueError where the words behind its marks are none of the above."""
    language, words = (info[0] if info else ""), info[1:]
    files = [word.partition("=")[2] for word in words if word.startswith("file=")]
    others = frozenset(word for word in words if not word.startswith(("file=", "lines=", "exit=")))
    if language not in LANGUAGES or others - LANGUAGES[language] or len(files) > 1:
        raise ValueError(f"{page.name}:{line}: no such kind of block: {' '.join(info) or 'nothing'}")
    return Block(page, line, language, others, files[0] if files else "", text)


def count_text() -> str:
    counts = Counter(block.how for page in PAGES for block in blocks(page))
    how = ", ".join(f"{counts[name]} {name}" for name in ("run", "checked", "shown"))
    return f"{counts.total()} code blocks on {len(PAGES)} pages: {how}"


if __name__ == "__main__":
    print(count_text())
