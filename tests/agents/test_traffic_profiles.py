import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from answers.told import refused
from cascade_sim.agents.traffic_profiles import (
    DAY,
    HOUR,
    Profile,
    arrivals,
    constant,
    daily,
    expected_share,
    hourly,
)
from effort import examples
from places import SCENARIOS

AVITO = SCENARIOS / "data" / "avito_week.csv"
WEEK = 7 * DAY


def integral(profile, times):
    """Lambda by adding up lambda second by second, without the profile's own Lambda."""
    per_second = profile.intensity(np.arange(int(WEEK)) + 0.5)
    return np.interp(times, np.arange(int(WEEK) + 1), np.concatenate([[0.0], np.cumsum(per_second)]))


def a_week_of_arrivals(profile, seed=1):
    times, _ = arrivals(np.random.default_rng(seed).exponential(size=130_000), profile)
    assert times[-1] > WEEK
    return times[times < WEEK]


PROFILES = {
    "constant": constant(0.2),
    "daily": daily(0.2),
    "week": hourly(AVITO, 0.2),
    "with pauses": Profile(np.array([0.0, 0.6, 0.0, 0.0, 0.4]) * 0.2 * 5, DAY / 5),
}
EVERY_PROFILE = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())


@EVERY_PROFILE
def test_the_mean_rate_is_the_one_asked_for(profile):
    assert profile.mean_rate == pytest.approx(0.2, rel=1e-14)
    assert profile.cumulative(WEEK) == pytest.approx(0.2 * WEEK, rel=1e-14)


@EVERY_PROFILE
def test_lambda_is_the_integral_of_the_intensity(profile):
    t = np.linspace(0, WEEK, 1000)
    assert profile.cumulative(t) == pytest.approx(integral(profile, t), rel=1e-9, abs=1e-9)
    assert profile.cumulative(0.0) == 0


@EVERY_PROFILE
def test_the_inverse_undoes_lambda(profile):
    t = np.random.default_rng(0).uniform(0, 3 * WEEK, 2000)
    t = t[profile.intensity(t) > 0]
    assert len(t) > 500
    assert profile.inverse(profile.cumulative(t)) == pytest.approx(t, rel=1e-12)


def test_after_a_pause_the_first_request_comes_when_the_pause_ends():
    profile = Profile(np.array([1.0, 0.0, 0.0, 2.0, 0.0]), 10.0)
    assert profile.inverse([9.0, 10.0, 12.0, 30.0, 31.0]) == pytest.approx([9, 30, 31, 50, 51])
    assert profile.cumulative([5, 10, 25, 30, 35, 45, 50]) == pytest.approx([5, 10, 10, 10, 20, 30, 30])


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(lambda rates: max(rates) > 1e-3),
    st.floats(1e-3, 1e5),
    st.floats(0, 1e3),
)
@examples(300)
def test_neither_lambda_nor_its_inverse_ever_falls(rates, step, periods):
    profile = Profile(np.array(rates), step)
    for f, edges in ((profile.cumulative, profile._knots), (profile.inverse, profile._levels)):
        x = (np.floor(periods) + np.array([0, 1, 2]))[:, None] * edges[-1] + edges
        x = np.sort(np.concatenate([x.ravel(), np.nextafter(x, -1).ravel(), np.nextafter(x, 1e300).ravel()]))
        assert np.all(np.diff(f(x)) >= 0)


def test_scalars_and_arrays_of_any_shape_are_answered_in_kind():
    profile = daily(3.0)
    assert np.ndim(profile.cumulative(5.0)) == np.ndim(profile.inverse(5.0)) == 0
    assert profile.intensity(np.zeros((2, 3))).shape == (2, 3)


def test_a_daily_curve_reaches_its_low_and_high_and_peaks_when_told():
    profile = daily(50.0, low=0.19, high=1.76, peak_hour=9.5)
    assert profile.rates.max() == pytest.approx(50 * 1.76, rel=1e-12)
    assert profile.rates.min() == pytest.approx(50 * 0.19, rel=1e-12)
    assert profile.intensity(9.5 * HOUR) == profile.rates.max()
    assert profile.intensity(21.5 * HOUR) == profile.rates.min()
    assert profile.intensity(9.5 * HOUR + 5 * DAY) == profile.rates.max()
    steepest = np.pi * (1.76 - 0.19) / 1440  # of a cosine of that height, per minute
    assert np.abs(np.diff(profile.rates / 50)).max() == pytest.approx(steepest, rel=0.05)


@pytest.mark.parametrize(("low", "high"), [(0, 1.01), (0.99, 3), (0, 20), (0.5, 1.5), (0.9, 5)])
def test_any_low_and_high_around_the_mean_can_be_had(low, high):
    profile = daily(2.0, low=low, high=high)
    assert profile.rates.min() == pytest.approx(2 * low, abs=1e-10)
    assert profile.rates.max() == pytest.approx(2 * high, rel=1e-10)
    assert profile.rates.mean() == pytest.approx(2, rel=1e-13)


def test_a_daily_curve_without_swing_is_constant():
    assert daily(7.0, low=1, high=1).intensity([0, 40_000, 86_399]).tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    "options",
    [{"low": -0.1}, {"low": 1.2}, {"high": 0.9}, {"low": 1}, {"low": 0.99999, "high": 50}, {"peak_hour": 24}],
)
def test_a_daily_curve_that_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match="low|peak_hour"):
        daily(1.0, **options)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("make", [constant, daily, lambda rate: hourly(AVITO, rate)])
def test_traffic_needs_a_rate(make, rate):
    with pytest.raises(ValueError, match="rate"):
        make(rate)


@pytest.mark.parametrize(
    ("rates", "step"), [([], 1), ([0, 0], 1), ([1, -1], 1), ([float("nan")], 1), ([1], 0), ([[1]], 1)]
)
def test_a_profile_that_cannot_be_is_refused(rates, step):
    with pytest.raises(ValueError, match="traffic profile"):
        Profile(np.array(rates), step)


def test_the_shipped_week_is_the_mean_of_the_regions():
    week = hourly(AVITO, 1.0).rates.reshape(7, 24)
    assert week.mean(axis=0).min() == pytest.approx(0.19, abs=0.005)
    assert week.mean(axis=0).max() == pytest.approx(1.76, abs=0.005)
    assert week.mean(axis=1).min() == pytest.approx(0.84, abs=0.005)
    assert week.mean(axis=1).max() == pytest.approx(1.23, abs=0.005)
    assert week.mean(axis=1).argsort()[:2].tolist() == [6, 5]  # the weekend is quiet


def test_the_shipped_week_comes_with_its_licence():
    licence = (AVITO.parent / "LICENSE-avito").read_text()
    assert "MIT License" in licence and "avito.tech" in licence


def write(folder, text):
    path = folder / "profile.csv"
    path.write_text(text)
    return path


def test_a_day_of_hours_repeats_every_day(tmp_path):
    profile = hourly(write(tmp_path, "\n".join(str(h) for h in range(24))), 23.0)
    assert profile.intensity(np.array([0, 1, 23, 24 + 5, 72 + 10]) * HOUR) == pytest.approx(
        [0, 2, 46, 10, 20]
    )


def test_rows_with_day_and_hour_may_come_in_any_order_with_comments_names_and_blanks(tmp_path):
    rows = [f"{d}, {h} ,{1 + 24 * d + h}" for d in range(7) for h in range(24)]
    text = "# why\n\nday_of_week,hour,share\r\n" + "\r\n".join(rows[::-1]) + "\n # end\n"
    profile = hourly(write(tmp_path, text), 1.0)
    assert profile.rates == pytest.approx(np.arange(1, 169) / np.arange(1, 169).mean())


def test_the_scale_of_the_values_does_not_matter(tmp_path):
    small, huge = (
        hourly(write(tmp_path, "\n".join(f"{h},{(h + 1) * scale!r}" for h in range(24))), 3.0)
        for scale in (1e-300, 1e306)
    )
    assert small.rates == pytest.approx(huge.rates, rel=1e-12)


DAY_ROWS = [f"{h},1.0" for h in range(24)]
BAD_FILES = {
    "empty": ("", r":1: 0 rows"),
    "a row short": ("\n".join(DAY_ROWS[:23]), r":23: 23 rows"),
    "not a number": (
        "# x\n" + "\n".join(DAY_ROWS).replace("7,1.0", "7,much", 1),
        r":9: 'much' is not a number",
    ),
    "a typo in the first row": ("\n".join(["0,l.0", *DAY_ROWS[1:]]), r":1: 'l.0' is not a number"),
    "names twice": ("hour,share\n" * 2 + "\n".join(DAY_ROWS), r":2: 'hour' is not a number"),
    "negative": ("\n".join(DAY_ROWS).replace("3,1.0", "3,-1.0", 1), r":4: -1.0 is not a finite number >= 0"),
    "infinite": ("\n".join(DAY_ROWS).replace("3,1.0", "3,inf", 1), r":4: inf is not"),
    "not a number at all": ("\n".join(["nan,nan", *DAY_ROWS[1:]]), r":1: nan is not"),
    "an hour twice": ("\n".join([*DAY_ROWS[:23], "4,1.0"]), r":24: the same hour as in line 5"),
    "an hour too late": ("\n".join([*DAY_ROWS[:23], "24,1.0"]), r":24: hour 24 is not one of 0 to 23"),
    "half an hour": ("\n".join([*DAY_ROWS[:23], "22.5,1.0"]), r":24: hour 22.5 is not"),
    "a ragged row": ("\n".join([*DAY_ROWS[:9], "9,1,1", *DAY_ROWS[10:]]), r":10: 3 columns where .* have 2"),
    "days in a day": (
        "\n".join(f"0,{row}" for row in DAY_ROWS),
        r":1: 3 columns; with 24 rows it takes 1 or 2",
    ),
    "days from 1": (
        "\n".join(f"{d},{h},1" for d in range(1, 8) for h in range(24)),
        r":145: day_of_week 7 is not one of 0 \(Monday\)",
    ),
    "no traffic": ("\n".join(["0"] * 24), r":24: all values are 0"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_malformed_file_is_refused_with_file_line_and_reason(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=f"profile.csv{message}") as error:
        hourly(path, 1.0)
    assert str(error.value).startswith(str(path))


def test_a_file_that_is_not_text_is_refused_with_its_line(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_bytes(b"1\n2\n\xff\xfe\n")
    with refused("profile.csv:3:", "text", kind=ValueError):
        hourly(path, 1.0)
    with pytest.raises(OSError):
        hourly(tmp_path / "missing.csv", 1.0)


def test_arrivals_of_a_constant_profile_are_gaps_over_rate():
    times, levels = arrivals(np.array([1.0, 2.0, 0.5]), constant(4.0))
    assert times == pytest.approx([1 / 4, 3 / 4, 3.5 / 4])
    assert levels == pytest.approx([1, 3, 3.5])


def test_twice_the_intensity_halves_the_gap():
    times, _ = arrivals(np.array([5.0, 5.0, 10.0, 10.0]), Profile(np.array([1.0, 2.0]), 10.0))
    assert times == pytest.approx([5, 10, 15, 20])


def test_no_gaps_give_no_arrivals():
    times, levels = arrivals(np.zeros(0), daily(50.0), 12.0)
    assert times.shape == levels.shape == (0,)


def test_traffic_may_begin_at_any_time():
    profile = daily(50.0)
    times, _ = arrivals(np.full(3, 1e-6), profile, float(profile.cumulative(10_000.0)))
    assert times == pytest.approx(np.full(3, 10_000), abs=1e-3)


@EVERY_PROFILE
@pytest.mark.parametrize("block", [1, 7, 512])
@pytest.mark.few(4)
def test_cutting_into_blocks_does_not_change_a_bit(profile, block):
    gaps = np.random.default_rng(3).exponential(size=3000)
    whole, _ = arrivals(gaps, profile)
    level, parts = 0.0, []
    for first in range(0, len(gaps), block):
        times, levels = arrivals(gaps[first : first + block], profile, level)
        level = float(levels[-1])
        parts.append(times)
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.all(np.diff(whole) > 0)


def poisson_p(counts, expected):
    """Two-sided p of sum (n - e)^2 / e under independent Poisson counts: chi-square with one df per count."""
    p = stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts))
    return min(p, 1 - p)


@pytest.mark.parametrize("name", ["constant", "daily", "week"])
def test_counts_per_hour_are_poisson_around_the_intensity(name):
    """Too large a statistic: wrong means or clumped arrivals; too small: arrivals more even than Poisson."""
    times = a_week_of_arrivals(PROFILES[name])
    counts = np.bincount((times // HOUR).astype(int), minlength=168)
    expected = np.diff(integral(PROFILES[name], np.arange(169) * HOUR))
    assert poisson_p(counts, expected) > 0.005
    other = np.diff(integral(PROFILES["constant" if name != "constant" else "daily"], np.arange(169) * HOUR))
    assert poisson_p(counts, other) < 1e-9
    assert poisson_p(np.round(expected), expected) < 1e-9


@pytest.mark.parametrize("name", ["constant", "daily", "week"])
def test_counts_per_minute_have_a_variance_equal_to_their_mean(name):
    times = a_week_of_arrivals(PROFILES[name], seed=2)
    n = 7 * 1440
    counts = np.bincount((times // 60).astype(int), minlength=n)
    expected = np.diff(integral(PROFILES[name], np.arange(n + 1) * 60.0))
    dispersion = ((counts - expected) ** 2 / expected).mean()
    assert dispersion == pytest.approx(1, abs=4 * np.sqrt(2.6 / n))  # Var = (2 + 1/e) / n, e >= 1.3


@EVERY_PROFILE
def test_in_expected_time_arrivals_are_a_plain_poisson_process(profile):
    """Time rescaling: given their number, Lambda(t_i) is uniform, and its gaps are exponential of mean 1."""
    times = a_week_of_arrivals(profile, seed=4)
    levels = integral(profile, times)
    assert stats.kstest(levels / (0.2 * WEEK), "uniform").pvalue > 0.01
    assert stats.kstest(np.diff(levels), "expon").pvalue > 0.01
    if profile is not PROFILES["constant"]:
        assert stats.kstest(np.diff(times) * 0.2, "expon").pvalue < 1e-6


def test_the_expected_share_of_a_day_runs_from_0_to_1_with_the_traffic():
    profile = Profile(np.array([1.0, 3.0]), DAY / 2)
    t = np.array([-5.0, 0, DAY / 4, DAY / 2, 3 * DAY / 4, DAY, 9 * DAY])
    assert expected_share(profile, 0, t) == pytest.approx([0, 0, 1 / 8, 1 / 4, 5 / 8, 1, 1])
    assert expected_share(profile, 3, t + 3 * DAY) == pytest.approx([0, 0, 1 / 8, 1 / 4, 5 / 8, 1, 1])
    assert expected_share(constant(8.0), 2, 2.25 * DAY) == pytest.approx(0.25)


def test_each_day_of_a_week_has_its_own_share():
    week = hourly(AVITO, 1.0)
    noon = [expected_share(week, day, day * DAY + DAY / 2) for day in range(7)]
    by_hand = week.rates.reshape(7, 24)[:, :12].sum(axis=1) / week.rates.reshape(7, 24).sum(axis=1)
    assert noon == pytest.approx(by_hand)
    assert len(set(np.round(noon, 4))) == 7


def test_a_day_without_traffic_passes_with_its_seconds():
    profile = Profile(np.array([1.0, 0.0]), DAY)
    assert expected_share(profile, 1, 1.75 * DAY) == pytest.approx(0.75)
