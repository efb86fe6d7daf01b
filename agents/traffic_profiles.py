"""Traffic that swells and ebbs: intensities over time and the Poisson arrivals that follow them.

Time is seconds since the start of the simulation; day 0 is a Monday and begins at 0.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

DAY = 86_400.0
HOUR = 3_600.0
MINUTES_PER_DAY = 1_440


@dataclass(frozen=True, eq=False)
class Profile:
    """A periodic intensity lambda(t), constant on pieces of `step` seconds, and its exact integral Lambda.

    rates   [P] requests per second on the pieces [i * step, (i + 1) * step); finite, >= 0, not all 0.
    step    seconds, > 0; the pattern repeats after P * step seconds.
    All methods take scalars or arrays and keep their shape. ValueError where the fields are not as said.
    """

    rates: np.ndarray
    step: float
    _knots: np.ndarray = field(init=False, repr=False)  # [P + 1] seconds
    _levels: np.ndarray = field(init=False, repr=False)  # [P + 1] Lambda at the knots

    def __post_init__(self) -> None:
        rates = np.array(self.rates, dtype=np.float64)
        if rates.ndim != 1 or not len(rates) or not np.isfinite(rates).all() or (rates < 0).any():
            raise ValueError("the rates of a traffic profile must be a list of finite numbers >= 0")
        if not (np.isfinite(self.step) and self.step > 0):
            raise ValueError(
                f"the step of a traffic profile must be a number of seconds > 0, not {self.step}"
            )
        levels = np.concatenate([[0.0], np.cumsum(rates * self.step)])
        if not (np.isfinite(levels[-1]) and levels[-1] > 0):
            raise ValueError("a traffic profile needs some traffic: not all of its rates may be 0")
        knots = np.arange(len(rates) + 1) * float(self.step)
        for name, array in (("rates", rates), ("_knots", knots), ("_levels", levels)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def period(self) -> float:
        """Seconds after which the pattern repeats."""
        return float(self._knots[-1])

    @property
    def mean_rate(self) -> float:
        """Requests per second on average over a period."""
        return float(self._levels[-1] / self._knots[-1])

    def intensity(self, t: ArrayLike) -> np.ndarray:
        """lambda(t) in requests per second."""
        _, within = _split(t, self.period)
        return self.rates[self._piece(self._knots, within)]

    def cumulative(self, t: ArrayLike) -> np.ndarray:
        """Lambda(t) = integral of lambda from 0 to t: the expected number of requests before t."""
        periods, within = _split(t, self.period)
        piece = self._piece(self._knots, within)
        level = self._levels[piece] + self.rates[piece] * (within - self._knots[piece])
        return _join(periods, np.minimum(level, self._levels[piece + 1]), self._levels[-1])

    def inverse(self, level: ArrayLike) -> np.ndarray:
        """Lambda^-1: the time by which `level` requests are expected; never falls as the level grows.

        Where a stretch without traffic leaves a choice, the end of that stretch.
        """
        periods, within = _split(level, float(self._levels[-1]))
        piece = self._piece(self._levels, within)
        rate = self.rates[piece]
        # Only a level clipped to the end of a period that closes without traffic meets a rate of 0.
        ahead = (within - self._levels[piece]) / np.where(rate > 0, rate, 1.0)
        return _join(periods, np.minimum(self._knots[piece] + ahead, self._knots[piece + 1]), self.period)

    def scaled(self, factor: float) -> "Profile":
        """The same shape with all rates times `factor` > 0."""
        return Profile(self.rates * factor, self.step)

    def _piece(self, edges: np.ndarray, within: np.ndarray) -> np.ndarray:
        """The last piece that begins at or before `within`."""
        return np.minimum(np.searchsorted(edges, within, side="right") - 1, len(self.rates) - 1)


def _split(x: ArrayLike, period: float) -> tuple[np.ndarray, np.ndarray]:
    """x as whole periods and the rest in [0, period]; rounding is clipped, so that the order is kept."""
    x = np.asarray(x, dtype=np.float64)
    periods = np.floor(x / period)
    return periods, np.clip(x - periods * period, 0.0, period)


def _join(periods: np.ndarray, within: np.ndarray, period: float) -> np.ndarray:
    """Whole periods and a rest as one number, which rounding must not carry beyond the period's end.

    Together with the same care at the end of each piece this keeps Lambda and its inverse from ever falling.
    """
    return np.minimum(periods * period + within, (periods + 1) * period)


def constant(rate: float) -> Profile:
    """The same intensity at all times: lambda(t) = rate > 0 requests per second."""
    return Profile(np.array([_checked_rate(rate)]), DAY)


def daily(rate: float, low: float = 0.19, high: float = 1.76, peak_hour: float = 14.25) -> Profile:
    """A smooth daily curve between low and high times its mean, constant within each minute.

    lambda = rate * (low + (high - low) * ((1 + cos theta) / 2)^p), theta = 2 pi (minute - peak) / 1440, with
    p > 0 chosen so that the mean is `rate` (for the default p is about 0.94: nearly a cosine). The most
    traffic comes in the minute of `peak_hour` (in [0, 24), rounded to a minute), the least 12 hours off.
    Needs 0 <= low < 1 < high, or low = high = 1: constant. The defaults are near the average day of
    scenarios/data/avito_week.csv.
    """
    rate = _checked_rate(rate)
    if not (0 <= low < 1 < high < np.inf or low == high == 1):
        raise ValueError(
            f"a daily curve needs 0 <= low < 1 < high (or both 1), not low {low} and high {high}"
        )
    if not 0 <= peak_hour < 24:
        raise ValueError(f"peak_hour must be in [0, 24), not {peak_hour}")
    if low == high:
        return constant(rate)
    minutes = np.arange(MINUTES_PER_DAY) - round(peak_hour * 60)
    hump = (1 + np.cos(2 * np.pi * minutes / MINUTES_PER_DAY)) / 2
    share = (1 - low) / (high - low)
    if share * MINUTES_PER_DAY <= 1:
        raise ValueError(f"low {low} and high {high} leave less than a minute for the peak of a daily curve")
    shape = low + (high - low) * hump ** _exponent(hump, share)
    return Profile(rate * (shape / shape.mean()), DAY / MINUTES_PER_DAY)


def _exponent(hump: np.ndarray, share: float) -> float:
    """p > 0 with mean(hump^p) = share, by bisection: the mean falls from nearly 1 to the peak alone."""
    low, high = 0.0, 1.0
    while np.mean(hump**high) > share:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(hump**middle) > share else (low, middle)
    return high


def hourly(path: str | Path, rate: float) -> Profile:
    """An intensity by the hour, from a CSV file of 24 rows (each day alike) or 168 (a week from Monday 0:00).

    Columns: `value`, or `hour,value`, or (168 rows) `day_of_week,hour,value` with day 0 = Monday; the rows of
    the first kind are in order of time, the others in any order. The values are finite numbers >= 0 of any
    scale, not all 0: they are divided by their mean and multiplied by `rate`. One line of column names may
    come first; empty lines and lines that begin with # are skipped. A file that is not like that is a
    ValueError `file:line: reason`; a missing one an OSError.
    """
    rate = _checked_rate(rate)
    values = _read_hours(Path(path))
    shape = values / values.max()  # huge values must not overflow in the mean
    return Profile(rate * (shape / shape.mean()), HOUR)


def _read_hours(path: Path) -> np.ndarray:
    """The values of an hourly profile file in order of time.  [24] or [168]"""
    rows = _rows(path)
    columns = len(rows[0][1]) if rows else 0
    last_line = rows[-1][0] if rows else 1
    if len(rows) not in (24, 168):
        raise _fault(
            path, last_line, f"{len(rows)} rows of numbers; a profile has 24 (a day) or 168 (a week)"
        )
    known = {24: (1, 2), 168: (1, 3)}[len(rows)]
    if columns not in known:
        raise _fault(
            path, rows[0][0], f"{columns} columns; with {len(rows)} rows it takes {known[0]} or {known[1]}"
        )
    values = np.zeros(len(rows))
    seen: dict[int, int] = {}
    for place, (line, numbers) in enumerate(rows):
        slot = _slot(path, line, numbers) if columns > 1 else place
        if slot in seen:
            raise _fault(path, line, f"the same hour as in line {seen[slot]}")
        seen[slot] = line
        values[slot] = numbers[-1]
    if not values.any():
        raise _fault(path, last_line, "all values are 0: there would be no traffic")
    return values


def _rows(path: Path) -> list[tuple[int, list[float]]]:
    """Line number and numbers of each row: all of one length, the last number finite and >= 0."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _fault(path, line, "not a text file in UTF-8") from None
    rows: list[tuple[int, list[float]]] = []
    may_be_names = True
    width = 0
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        cells = [cell.strip().strip('"') for cell in content.split(",")]
        width = width or len(cells)
        if len(cells) != width:
            raise _fault(path, line, f"{len(cells)} columns where the lines before have {width}")
        # Names hold no digit at their start: a first row with a typo must not pass for them.
        if may_be_names and all(cell[:1].isalpha() and not _is_number(cell) for cell in cells):
            may_be_names = False
            continue
        may_be_names = False
        for cell in cells:
            if not _is_number(cell):
                raise _fault(path, line, f"{cell!r} is not a number")
        numbers = [float(cell) for cell in cells]
        if not (np.isfinite(numbers[-1]) and numbers[-1] >= 0):
            raise _fault(path, line, f"{cells[-1]} is not a finite number >= 0")
        rows.append((line, numbers))
    return rows


def _slot(path: Path, line: int, numbers: list[float]) -> int:
    """The hour of the day or of the week that a row with an hour (and a day) stands for."""
    *days, hour, _ = numbers
    if hour not in range(24):
        raise _fault(path, line, f"hour {hour:g} is not one of 0 to 23")
    if days and days[0] not in range(7):
        raise _fault(path, line, f"day_of_week {days[0]:g} is not one of 0 (Monday) to 6 (Sunday)")
    return int(hour) + (24 * int(days[0]) if days else 0)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _fault(path: Path, line: int, reason: str) -> ValueError:
    return ValueError(f"{path}:{line}: {reason}")


def _checked_rate(rate: float) -> float:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"a traffic rate must be a finite number of requests per second > 0, not {rate}")
    return float(rate)


def arrivals(
    gaps: np.ndarray, profile: Profile, start_cumulative: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Times of a Poisson process of intensity lambda(t) from unit-mean exponential gaps > 0, by time change.

    L_i = start_cumulative + sum_{j<=i} gap_j;  t_i = Lambda^-1(L_i).  Returns t and L, both [R], never
    falling (and increasing but for gaps too small for a float at that time). To go on in blocks, start the
    next one at L[-1]; to begin at time t, at profile.cumulative(t). The sum is taken strictly from left to
    right, so cutting the gaps into blocks does not change a bit. No gaps give empty arrays.
    """
    levels = np.cumsum(np.concatenate([[start_cumulative], np.asarray(gaps, dtype=np.float64)]))[1:]
    return profile.inverse(levels), levels


def expected_share(profile: Profile, day: int, t: ArrayLike) -> np.ndarray:
    """Share of the expected traffic of a day that has come by time t (seconds since the simulation began).

    (Lambda(t) - Lambda(day's begin)) / (Lambda(day's end) - Lambda(day's begin)); 0 before that day, 1 after
    it. On a day without any traffic the share of its seconds.
    """
    begin, end = profile.cumulative(np.array([day * DAY, (day + 1) * DAY]))
    if end <= begin:
        return np.clip((np.asarray(t, dtype=np.float64) - day * DAY) / DAY, 0.0, 1.0)
    return np.clip((profile.cumulative(t) - begin) / (end - begin), 0.0, 1.0)
