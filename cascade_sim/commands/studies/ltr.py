"""`cascade_sim ltr`: objectives compared on learning-to-rank files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cascade_sim.commands.options import PATH, device_option, out_option, quiet_option, seeds_option
from cascade_sim.foundation.errors import UserError, did_you_mean, unknown_name
from cascade_sim.foundation.terminal import echo
from cascade_sim.ltr.presets import OBJECTIVES_OF, PRESETS

if TYPE_CHECKING:
    from cascade_sim.ltr.study import Plan

FILES = """\b
Files are SVMlight or LETOR text, plain or gzip: label [qid:N] id:value ... [# comment]. Without qid the
rows of each list are counted in FILE.query or FILE.group, a number a line. What a line leaves out is 0."""


MAX_RATE = 10.0  # as of a scenario's models


class Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(dict.fromkeys(float(word) for word in value.split(",")))
        except ValueError:
            self.fail(f"'{value}' is not a number, or numbers with commas between them", param, ctx)
        return numbers


class Layers(click.ParamType):
    """Widths of layers, 1024-512-256."""

    name = "widths"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not all(word.isdigit() and 0 < int(word) < 100_000 for word in value.split("-")):
            self.fail(f"'{value}' is not of the form 1024-512-256", param, ctx)
        return tuple(int(word) for word in value.split("-"))


@click.command(epilog=FILES)
@click.option("--train", type=PATH, help="Lists to train on.")
@click.option("--valid", "--vali", type=PATH, help="Lists to choose by.  [default: a fifth of --train]")
@click.option("--test", type=PATH, help="Lists to measure on.")
@click.option(
    "--data",
    type=PATH,
    metavar="FOLDER",
    help="In place of the three, a folder as published: train.txt, vali.txt, test.txt, or set1.train.txt …",
)
@click.option(
    "--preset",
    type=click.Choice(tuple(PRESETS)),
    help="The papers' set-up for that data set, or for small files. Given options override it.",
)
@click.option(
    "--objective",
    "names",
    multiple=True,
    default=("all",),
    show_default=True,
    help="May be repeated. A joint objective takes -sum or -mean: its ranking part whole, or per unit of "
    "label, as in multi_objective-mean, which RCR's paper compares rcr with. softmax-grades learns from the "
    "grades with --binary, too; mse_softplus is rcr_regression at alpha 0.",
)
@click.option(
    "--binary",
    is_flag=True,
    help="Learn labels of 0 and 1: log loss in place of squared error. NDCG stays that of the grades.",
)
@click.option(
    "--positive-from",
    type=float,
    default=1.0,
    show_default=True,
    help="Least grade that --binary makes 1.",
)
@click.option(
    "--calibrator",
    "calibrators",
    multiple=True,
    help="Add a row with it for every objective; may be repeated; none for no such rows.  "
    "[default: platt where there is no scale, and sbcr's own]",
)
@click.option("--alpha", type=Numbers(), default="0.1,0.5,0.9", show_default=True, help="Grid of weights.")
@click.option("--learning-rate", type=Numbers(), default="0.003", show_default=True, help="Grid of rates.")
@click.option("--dropout", type=Numbers(), default="0.2", show_default=True, help="Grid of dropouts.")
@click.option(
    "--momentum",
    type=Numbers(),
    default="0.1",
    show_default=True,
    help="Grid of momenta of batch norm: the weight of the latest batch in what is kept for serving.",
)
@click.option(
    "--y0", type=Numbers(), help="Grid of labels of the virtual item.  [default: each objective's own]"
)
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=0,
    help="Trainings of every objective and seed: as many points of its grid, spread evenly.  "
    "[default: 0, the whole grid of each, which is larger where there is an alpha]",
)
@click.option(
    "--layers", type=Layers(), help="Widths, as 256-128.  [default: by --train, 64-32 to 1024-512-256]"
)
@click.option("--epochs", type=click.IntRange(min=1), help="[default: by --train, 5 to 40]")
@click.option("--batch", type=click.IntRange(min=1), help="Lists a step.  [default: by --train, 4 to 32]")
@click.option("--beta", type=float, help="Sharpness of approx_ndcg.  [default: 10]")
@click.option(
    "--inputs",
    type=click.Choice(["log1p", "plain"]),
    default="log1p",
    show_default=True,
    help="Features as sign(x) log(1 + |x|), or as they are.",
)
@click.option(
    "--split",
    type=click.Choice(["every", "seed"]),
    default="every",
    show_default=True,
    help="Without --valid: every fifth list to choose by, or a fifth that each seed draws.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=3),
    help="Cross-validate over all lists of all files: one fold to test on, the next to choose by.",
)
@click.option(
    "--baseline",
    default="pointwise",
    show_default=True,
    help="Row that the others are tested against, such as softmax+platt.",
)
@click.option(
    "--tables",
    type=click.Choice(["usual", "papers"]),
    default="usual",
    show_default=True,
    help="papers: also choose by NDCG@10 and by the loss alone, with the tables of RCR's paper.",
)
@seeds_option("Trainings per cell.", default=1)
@device_option("cpu")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="For torch; results may differ in their last digits with another number.",
)
@out_option("Folder.", default=Path("runs/ltr"), show_default=True)
@quiet_option
def command(
    train: Path | None,
    valid: Path | None,
    test: Path | None,
    data: Path | None,
    out: Path,
    quiet: bool,
    **options: Any,
) -> None:
    """Compare objectives on learning-to-rank files.

    Trains a net for every objective on the grid of alphas and learning rates, chooses by the validation
    lists, and measures order and scale on the test lists. Prints the table of rankers with paired tests
    against the baseline, the strict wins and the Pareto frontier; writes ltr.html, ltr.csv, ltr.json and the
    figures pareto and drift as PNG and SVG.
    """
    from cascade_sim.analysis.report.sections import ltr as ltr_tables
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.ltr.study import compare, load_files, write_study
    from cascade_sim.models.training import pick_device
    from cascade_sim.storage.files import storage_errors

    try:
        device = pick_device(options["device"]).type
    except ValueError as error:
        raise UserError(str(error)) from error
    context = click.get_current_context()
    if options["folds"] and context.get_parameter_source("split") is not ParameterSource.DEFAULT:
        raise UserError("--split: the lists to choose by are a fold with --folds; leave one of the two out")
    options = with_preset(options, context)
    plan = make_plan(options, device)
    train, valid, test = files_of(train, valid, test, data, needs_test=not options["folds"])
    for option, file in (("--train", train), ("--valid", valid), ("--test", test)):
        if file is not None and not file.exists():  # now, not after a large file was read
            beside = sorted(str(path) for path in file.parent.glob("*"))
            raise UserError(f"{option}: {file}: no such file{did_you_mean(str(file), beside)}")
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with Progress(quiet) as progress:
        positive_from = options["positive_from"] if options["binary"] else None
        files = load_files(
            train,
            valid,
            test,
            positive_from,
            device,
            progress,
            log1p=options["inputs"] == "log1p",
            split_by_seed=options["split"] == "seed",
            folds=options["folds"],
        )
        given = {key: options[key] for key in ("layers", "epochs", "batch")}
        plan = plan.sized(files.train, **given)
        findings = compare(files, plan, progress, options["threads"])
    echo(ltr_tables.text(findings), nl=False)
    for path in write_study(findings, out):
        echo(path)


def with_preset(options: dict[str, Any], context: click.Context) -> dict[str, Any]:
    """The options, of which those that were not given are as the preset has them."""
    name = options.pop("preset")
    if name is None:
        return options
    task = "binary" if options["binary"] else "graded"
    of_preset = {"names": OBJECTIVES_OF[task], **PRESETS[name].options}
    is_given = {
        option: context.get_parameter_source(option) is not ParameterSource.DEFAULT for option in options
    }
    return {
        option: value if is_given[option] else of_preset.get(option, value)
        for option, value in options.items()
    }


def files_of(
    train: Path | None,
    valid: Path | None,
    test: Path | None,
    data: Path | None,
    needs_test: bool = True,
) -> tuple[Path, Path | None, Path | None]:
    """The three files, named one by one or found in the folder."""
    from cascade_sim.ltr.files import parts_of

    if data is not None:
        if any(part is not None for part in (train, valid, test)):
            raise UserError("--data names all three files; leave out --train, --valid and --test")
        parts = parts_of(data)
        return parts["train"], parts.get("valid"), parts["test"]
    if train is None or (test is None and needs_test):
        raise UserError("give --train and --test, or a folder with --data")
    return train, valid, test


def make_plan(options: dict[str, Any], device: str) -> Plan:
    """What the options ask for; UserError for a name that is not known or a value out of range."""
    from cascade_sim.ltr.study import Plan
    from cascade_sim.ltr.training import Settings
    from cascade_sim.ltr.tuning import ENTRANTS, entrant_of
    from cascade_sim.models.calibrators import CALIBRATORS
    from cascade_sim.models.objectives import OBJECTIVES, family_name, objectives_for, split_family

    task = "binary" if options["binary"] else "graded"
    names = tuple(dict.fromkeys(options["names"]))
    for name in names:
        if not {name, split_family(name)[0]} & {"all", *OBJECTIVES, *ENTRANTS}:
            raise UserError(unknown_name("objective", name, ["all", *OBJECTIVES, *ENTRANTS]))
    if "all" in names:
        names = tuple(objectives_for(task))
    names = tuple(dict.fromkeys(name if name in ENTRANTS else family_name(name) for name in names))
    for name in names:
        if task not in entrant_of(name).tasks:
            mend = "binary labels; add" if task == "graded" else "grades; leave out"
            raise UserError(f"{name} is for {mend} --binary")
    calibrators: tuple[str, ...] | None = tuple(dict.fromkeys(options["calibrators"])) or None
    for name in calibrators or ():
        if name not in CALIBRATORS and name != "none":
            raise UserError(unknown_name("calibrator", name, ["none", *CALIBRATORS]))
    if calibrators is not None:
        calibrators = tuple(name for name in calibrators if name != "none")
        if calibrators and task != "binary":
            raise UserError("calibrators give probabilities; add --binary")
    if not all(0 < rate <= MAX_RATE for rate in options["learning_rate"]):
        raise UserError(f"--learning-rate: rates must be greater than 0 and at most {MAX_RATE:g}")
    if not all(0 <= share < 1 for share in options["dropout"]):
        raise UserError("--dropout: shares must be at least 0 and less than 1")
    if not all(0 < momentum <= 1 for momentum in options["momentum"]):
        raise UserError("--momentum: momenta must be greater than 0 and at most 1")
    plan = Plan(
        names,
        task,
        options["alpha"],
        options["learning_rate"],
        tuple(range(1, options["seeds"] + 1)),
        calibrators,
        {} if options["beta"] is None else {"beta": options["beta"]},
        Settings(device=device),
        dropouts=options["dropout"],
        momenta=options["momentum"],
        y0s=options["y0"] or (),
        budget=options["budget"] or None,
        baseline=options["baseline"],
        papers=options["tables"] == "papers",
        folds=options["folds"],
    )
    rows = [row for name in names for row in plan.rows_of(name)]
    if plan.baseline not in (*rows, "pointwise"):
        raise UserError(unknown_name("baseline", plan.baseline, rows))
    try:
        for name in names:
            plan.cells_of(name)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    return plan
