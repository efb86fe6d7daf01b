"""The nets that score: towers, co-action, crosses, gates, and the net of learning-to-rank files."""

# The kinds of models that come with the package. A new one is its class and one line here.
NETS: dict[str, str] = {
    "towers": "cascade_sim.models.nets.towers:TwoTowers",
    "coaction": "cascade_sim.models.nets.coaction:CoAction",
    "dcn": "cascade_sim.models.nets.dcn:CrossNet",
    "inttower": "cascade_sim.models.nets.inttower:InterTowers",
    "cold": "cascade_sim.models.nets.cold:GatedNet",
}
*_FIRST, _LAST = NETS
NETS_TEXT = f"{', '.join(_FIRST)} and {_LAST}"  # as a sentence has them
