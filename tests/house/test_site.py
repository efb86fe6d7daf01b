"""The site of docs/ builds without a warning and without network, and its made pages hold all they should."""

import re
import subprocess
import sys

import pytest

from cascade_sim.analysis.metrics.catalogue import (
    ARM_MEASURES,
    MARKET_MEASURES,
    MODEL_MEASURES,
    PAGE_MEASURES,
)
from cascade_sim.cli import COMMANDS
from cascade_sim.scenario.messages import json_schema
from places import ROOT

pytestmark = pytest.mark.drill
# What a page loads by itself; a link that a reader may follow is none.
LOADED = re.compile(
    r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(?:https?:)?//|@import|url\((?!data)'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """As `make docs` builds it, from nothing."""
    folder = tmp_path_factory.mktemp("site")
    words = [
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        folder / "doctrees",
        ROOT / "docs",
        folder / "site",
    ]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "site"


def test_nothing_is_loaded_from_elsewhere(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    loading = [
        page.name for page in pages if any("//" in hit for hit in LOADED.findall(page.read_text("utf-8")))
    ]
    assert len(pages) > 25 and loading == []


def test_every_command_every_key_and_every_metric_has_its_place(site):
    made = {
        name: (site / "made" / f"{name}.html").read_text("utf-8")
        for name in ("commands", "scenario", "metrics")
    }
    assert [name for name in COMMANDS if f'id="{name}"' not in made["commands"]] == []
    assert [name for name in (*ARM_MEASURES, *PAGE_MEASURES, *MARKET_MEASURES, *MODEL_MEASURES)
            if f"<h3>{name}<" not in made["metrics"]] == []  # fmt: skip
    schema = json_schema()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", {})}
    assert [key for key in keys if f">{key}<" not in made["scenario"]] == []


def test_every_public_name_is_described(site):
    import cascade_sim
    from cascade_sim import protocols

    page = (site / "python_names.html").read_text("utf-8")
    names = set(cascade_sim.__all__) - {"Scenario", "SEMANTICS", "__version__"}
    names |= {f"protocols.{name}" for name in protocols.__all__}
    assert [name for name in names if f'id="cascade_sim.{name}"' not in page] == []
