"""Classes that the page's scripts put together have a rule in its style sheet: without one a bar is black."""

import re

from places import ROOT

LIVE = ROOT / "cascade_sim" / "live"


def test_every_bar_of_a_stage_has_a_colour():
    scripts = (LIVE / "draw.js").read_text() + (LIVE / "live.js").read_text()
    (default,) = re.findall(r'"bar-" \+ \(\w+\.kind \|\| "([\w-]+)"\)', scripts)
    kinds = {default, *re.findall(r'kind: "(lost[\w-]*)"', scripts)}
    colours = set(re.findall(r"svg \.bar-([\w-]+) \{ fill", (LIVE / "live.css").read_text()))
    assert kinds <= colours
