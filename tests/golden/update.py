"""Write the golden files anew: `python tests/golden/update.py`.

Refused while results differ under the same SEMANTICS: a change of results first gets a new number in
cascade_sim/version.py and a section in CHANGELOG.md. On another stack or machine the files may be rewritten
as long as the results agree within what that changes.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cascade_sim.regression.blocks import json_lines  # noqa: E402
from golden.chains import CHAINS, run_chain  # noqa: E402
from golden.runs import FOLDER, RUNS, changes, read_golden, run_golden  # noqa: E402


def refusal(name: str, kept: dict | None, now: dict) -> str | None:
    """Why the file may not be written, or None."""
    if kept is None or now["semantics"] > kept["semantics"]:
        return None
    if now["semantics"] < kept["semantics"]:
        return f"{name}: the file is of SEMANTICS {kept['semantics']}, the code has {now['semantics']}"
    found = changes(kept, now)
    if not found:
        return None
    return (
        f"{name}: {len(found)} results differ under the same SEMANTICS {now['semantics']}, the first: "
        f"{found[0]}\nif that is meant, raise SEMANTICS in cascade_sim/version.py, say what changed in "
        "CHANGELOG.md, and come back; if not, it is a bug"
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CASCADE_SIM_CACHE"] = cache  # everything is trained anew
        made = {name: run_golden(name) for name in RUNS} | {name: run_chain(name) for name in CHAINS}
    refused = [text for name in made if (text := refusal(name, read_golden(name), made[name]))]
    for text in refused:
        print(f"refused: {text}", file=sys.stderr)
    if refused:
        return 1
    for name, content in made.items():
        (FOLDER / f"{name}.json").write_text(json_lines(content))
        print(f"written: tests/golden/{name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
