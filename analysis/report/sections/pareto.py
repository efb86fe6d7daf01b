"""The sweep over alpha in words and tables: who is on the frontier, who beats whom, and what it earns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES
from cascade_sim.analysis.metrics.pareto import (
    PairwiseWins,
    Point,
    best_of,
    families,
    games_of,
    on_frontier,
    surely_beaten,
    sweep_points,
)
from cascade_sim.analysis.report.figures.pareto import pareto
from cascade_sim.analysis.report.section import Columns, Figure, Section, Text, titled
from cascade_sim.analysis.report.sections.objectives import QUALITY_MEASURES
from cascade_sim.analysis.report.tables import Cell, Row, Table, column, lift_column, value_column
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import MISSING

ABOUT = (
    "A point is a ranker, a family all points of one objective. GAUC and LogLoss are of the pages of "
    "{baseline}, against the true CTR; {baseline}'s own ranker, which chose those pages, is left out. "
    "α is the weight of the ranking part (for jrc and sbcr: of the log loss), y0 the label of the virtual "
    "item. The frontier is made of the points that no other beats."
)
RULE = (
    "A ranker strictly wins against another if it is at least as good in both, GAUC and LogLoss (equal in "
    "both is no win here). Every point of a family plays every point of the others{worlds}. “Neither”: one "
    "orders better, the other has the better scale. Beyond noise: pairs of points whose paired differences "
    "have 95 % intervals on the better side in both measures, {noise}; not adjusted for the number of pairs."
)
BEST = (
    "Each family at its best point: the least LogLoss among those whose GAUC is not below the family's best "
    "beyond noise, so chosen by predictions and not by what is earned. Lifts are over {baseline}."
)
QUALITY = ("gauc", "logloss", "ece")
EARNED = ("cpc_error", "welfare_vs_oracle")


def pareto_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on a sweep over settings; None for a study without one."""
    points = sweep_points(metrics)
    if not any(len({p.setting for p in own}) > 1 for own in families(points).values()):
        return None
    several = bool(metrics.get("seeds"))
    noise = "between worlds" if several else "from resampling requests: the noise of training is not in them"
    figure = Figure(
        "pareto",
        pareto,
        "GAUC against LogLoss and against ECE of every ranker of the sweep",
        "Order against scale of every ranker; lines join a family's settings, from the least to the largest "
        "(labelled). Ringed and dashed: the frontier. Up and to the left is better. Thin bars are 95 % "
        "intervals " + ("between worlds." if several else "from resampling requests."),
    )
    rule = RULE.format(worlds=" in each world" if several else "", noise=noise)
    return Section(
        "pareto",
        "Ranking quality vs calibration",
        (pareto_words(metrics, points),),
        (
            Columns((figure,)),
            *titled(
                "Each family at its best",
                best_table(metrics, points),
                Text(BEST.format(baseline=metrics["baseline"]), "small"),
                Text(ABOUT.format(baseline=metrics["baseline"]), "small"),
                margins=True,
            ),
            *titled("Strict wins", wins_table(metrics), Text(rule, "small")),
        ),
        short="Order and scale",
    )


def pareto_words(metrics: Mapping[str, Any], points: Sequence[Point]) -> str:
    """Which families are on the frontier, which are off it beyond noise, and who wins most."""
    front = families(on_frontier(points))
    told = [_listed(own) for own in front.values()]
    said = [f"On the frontier of GAUC against LogLoss: {listed(told)}."]
    beaten = {point.arm for point in surely_beaten(metrics, points)}
    left = [point for point in points if point.arm not in beaten]
    gone = [family for family in families(points) if family not in families(left)]
    if gone:
        verb = "is" if len(gone) == 1 else "are"
        said.append(f"Beyond noise {listed(gone)} {verb} beaten at every point.")
    if beaten:
        owners = listed(list(families(left)))
        said.append(f"Noise leaves {len(left)} of the {len(points)} points unbeaten, of {owners}.")
    else:
        said.append("Beyond noise no point is beaten by another.")
    games = games_of(metrics)
    totals = {f: _total(games[f]) for f, own in families(points).items() if f in games and len(own) > 1}
    if len(totals) > 1 and all(total.games for total in totals.values()):
        most = max(totals, key=lambda f: totals[f].won / totals[f].games)
        least = min(totals, key=lambda f: totals[f].lost / totals[f].games)
        won = _share(totals[most].won, totals[most].games)
        lost = _share(totals[least].lost, totals[least].games)
        said.append(
            f"Of the {len(totals)} families with several settings {most} strictly wins the most of its games "
            f"({won} %) and {'' if least == most else f'{least} '}loses the fewest ({lost} %)."
        )
    return " ".join(said)


def _listed(own: Sequence[Point]) -> str:
    """A family and the settings of its points: `rcr (α 0.5, 0.9)`."""
    settings = sorted((p for p in own if p.setting is not None), key=lambda p: p.setting or 0.0)
    if not settings:
        return own[0].family
    rest = "".join(f", {point.setting:g}" for point in settings[1:])
    return f"{own[0].family} ({settings[0].setting_text}{rest})"


def _total(rivals: Mapping[str, PairwiseWins]) -> PairwiseWins:
    return sum(rivals.values(), PairwiseWins())


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}" if whole else MISSING


def wins_table(metrics: Mapping[str, Any]) -> Table:
    """Games of every family: totals, those beyond noise, and the share won against each rival."""
    games = games_of(metrics)
    names = list(games)
    rows = []
    for family, rivals in games.items():
        total = _total(rivals)
        cells = [Cell(str(total.games))]
        cells += [Cell(f"{_share(n, total.games)}", f"{n}") for n in (total.won, total.lost, total.tied)]
        cells += [Cell(str(total.pairs)), Cell(str(total.sure_won)), Cell(str(total.sure_lost))]
        cells += [_against(rivals.get(rival)) for rival in names]
        rows.append(Row(f"{names.index(family) + 1} {family}", cells))
    columns = ["games", "won %", "lost %", "neither %", "pairs", "won", "lost"]
    columns += [str(i + 1) for i in range(len(names))]
    groups = [("All games", 4), ("Beyond noise", 3), ("Won against family …, %", len(names))]
    return Table("Strict wins", "Family", columns, rows, groups)


def _against(games: PairwiseWins | None) -> Cell:
    """The share won against a rival; toned where wins or losses beyond noise are all on one side."""
    if games is None:
        return Cell("·")
    tone = ""
    if (games.sure_won > 0) != (games.sure_lost > 0):
        tone = "up" if games.sure_won else "down"
    return Cell(_share(games.won, games.games), tone=tone)


def best_table(metrics: Mapping[str, Any], points: Sequence[Point]) -> Table:
    """Each family's best point: how it predicts, and what its pages earn and charge."""
    best = [best_of(metrics, own) for own in families(points).values()]
    best.sort(key=lambda point: point.measures["logloss"].value or 0.0)
    arms = [point.arm for point in best]
    front = {point.arm for point in on_frontier(points)}
    columns = [
        [Cell(point.setting_text or MISSING) for point in best],
        *(column(QUALITY_MEASURES[name], [point.measures[name] for point in best]) for name in QUALITY),
        value_column(metrics, arms, "expected_rpm"),
        lift_column(metrics, arms, "expected_rpm"),
        *(value_column(metrics, arms, name) for name in EARNED),
    ]
    headings = ["at", *(QUALITY_MEASURES[name].heading for name in QUALITY)]
    headings += ["RPM", "RPM lift %", *(ARM_MEASURES[name].heading for name in EARNED)]
    rows = [
        Row(
            point.family,
            [made[i] for made in columns],
            hint=point.arm,
            tag="frontier" * (point.arm in front),
            arm=point.arm,
        )
        for i, point in enumerate(best)
    ]
    groups = [("Setting", 1), ("Predictions", len(QUALITY)), ("Pages and prices", len(EARNED) + 2)]
    return Table("Each family's best point", "Family", headings, rows, groups)
