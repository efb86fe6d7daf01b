"""What the docs show as printed is printed when the site is built: nobody types figures that a change moves.

A block of the kind `text printed` stands right below the shell block whose last command prints it. In the
source it holds a word on that; in the site, what the command writes. `lines=N` keeps the first N lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)


def with_output(text: str, root: Path = ROOT) -> str:
    """A page's text in which each `text printed` block has what the command above it prints.

    The page's files are written and its commands run, in order, in a folder of their own with the shipped
    scenarios. RuntimeError where a block has no command above it, or the command fails.
    """
    fences = list(FENCE.finditer(text))
    wanted = [i for i, fence in enumerate(fences) if fence["info"].split()[:2] == ["text", "printed"]]
    if not wanted:
        return text
    made: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "scenarios", Path(folder, "scenarios"))
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
            printed = _run(fence["text"], Path(folder), root) if language == "shell" else None
    parts, end = [], 0
    for i, output in made.items():
        fence = fences[i]
        parts += [text[end : fence.start()], f"```text\n{output}```"]
        end = fence.end()
    return "".join([*parts, text[end:]])


def _run(commands: str, folder: Path, root: Path) -> str:
    """What the last of some lines `python -m cascade_sim …` prints."""
    printed = ""
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    for line in commands.replace("\\\n", " ").splitlines():
        if not line.startswith("python -m cascade_sim "):
            continue
        done = subprocess.run(
            [sys.executable, *line.split()[1:], *(["--quiet"] if _has_progress(line) else [])],
            cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{line}: exit code {done.returncode}\n{done.stderr}")
        printed = done.stdout
    return printed


def _has_progress(line: str) -> bool:
    return line.split()[3] in ("run", "whatif", "sweep")
