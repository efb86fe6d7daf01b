"""What the docs show as printed is printed when the site is built: figures that a change moves are not typed.

A block of the kind `text printed` is right below the shell block whose last command prints it. In the
source it holds a word on that; in the site, what the command writes. `lines=N` keeps the first N lines;
`exit=N` says that the command ends with that code, as one that refuses does. All pages that ask
runs/quick ask the same run, made for the first of them.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)


def with_output(text: str, root: Path = ROOT) -> str:
    """A page's text in which each `text printed` block has what the command above it prints.

    The page's files are written and its commands and Python blocks run, in order, in a folder of their own
    with the shipped scenarios and, where they name it, runs/quick. RuntimeError where a block has no command
    above it, or the command fails.
    """
    fences = list(FENCE.finditer(text))
    wanted = [i for i, fence in enumerate(fences) if fence["info"].split()[:2] == ["text", "printed"]]
    if not wanted:
        return text
    made: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "scenarios", Path(folder, "scenarios"))
        if any("runs/quick" in fence["text"] for fence in fences[: wanted[-1]]):
            shutil.copytree(_quick(root), Path(folder, "runs", "quick"))
        printed = None
        for i, fence in enumerate(fences[: wanted[-1] + 1]):
            language, *words = fence["info"].split()
            for name in (word.partition("=")[2] for word in words if word.startswith("file=")):
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, name).write_text(fence["text"], encoding="utf-8")
            if i in wanted:
                if printed is None:
                    raise RuntimeError(f"no command above the block: {fence['text'][:60]!r}")
                most = [int(word.partition("=")[2]) for word in words if word.startswith("lines=")]
                made[i] = "\n".join(printed.splitlines()[: most[0] if most else None]) + "\n"
            if language == "python" and not words:
                _done([sys.executable, "-c", fence["text"]], Path(folder), root)
            below = fences[i + 1]["info"].split() if i + 1 in wanted else []
            code = next((int(word[5:]) for word in below if word.startswith("exit=")), 0)
            printed = _run(fence["text"], Path(folder), root, code) if language == "shell" else None
    parts, end = [], 0
    for i, output in made.items():
        fence = fences[i]
        parts += [text[end : fence.start()], f"```text\n{output}```"]
        end = fence.end()
    return "".join([*parts, text[end:]])


@cache
def _quick(root: Path) -> Path:
    """The run of scenarios/quick.yaml, made once in a process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(root / "scenarios", folder / "scenarios")
    _run("python -m cascade_sim run scenarios/quick.yaml", folder, root, 0)
    return folder / "runs" / "quick"


def _run(commands: str, folder: Path, root: Path, code: int) -> str:
    """What the last of some lines `python -m cascade_sim …` prints, which ends with that code."""
    printed = ""
    for line in commands.replace("\\\n", " ").splitlines():
        if not line.startswith("python -m cascade_sim "):
            continue
        quiet = ["--quiet"] if _has_progress(line) else []
        printed = _done([sys.executable, *line.split()[1:], *quiet], folder, root, code)
    return printed


def _done(words: list[str], folder: Path, root: Path, code: int = 0) -> str:
    """What a process prints; errors where it is one that refuses. RuntimeError for another exit code."""
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(words[1:])}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout or done.stderr


def _has_progress(line: str) -> bool:
    return line.split()[3] in ("run", "whatif", "sweep")
