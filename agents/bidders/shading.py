"""Value-based shading: bid below the value by as much as pays."""

import numpy as np

from cascade_sim.agents.bidding import MICROS, Bidder, Feedback, MarketTime, Portfolio, number


class Shading(Bidder):
    """Bid shading: bid = value * shade, shade in [min_shade, 1], moved towards the largest surplus.

    Surplus per request  u = w * (v - c):  w = impressions / requests taken part in, c = spend / clicks,
    v = value per click. Half of the updates bid shade * (1 - dither), half the full shade, in the balanced
    order of Thue and Morse, which no trend over the day imitates. From the two, over the last `memory`
    seconds (exponential weights), come the elasticities E_w = d ln w / d ln bid and E_c = d ln c / d ln bid,
    and the slope  s = (d u / d ln bid) / (w v) = E_w (1 - c/v) - E_c c/v.
    After dt seconds  ln shade <- ln shade + step * dt / memory * soft(s, standard error of s),  at most LEAP
    at once and within [ln min_shade, 0]. soft(s, d) moves s towards 0 by d: slopes that chance may explain do
    not count. In a first-price auction the largest surplus is at shade = E_w / (1 + E_w); in a second-price
    auction at 1.
    v is the mean value of the advertiser's ads, or c / shade if that is more (one never pays above the bid).
    Advertisers without MIN_CLICKS in either half stay as they are. Days make no difference.

    Args:
        portfolio: values, owners and budgets of the advertisers.
        step: step size of ln shade per `memory`, in (0, 100].
        dither: relative difference of the two bid levels, in [0.01, 0.5].
        memory: time constant of the weights in seconds, > 0.
        min_shade: lower bound of shade, in (0, 1].

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Shading(portfolio, dither=0.15).bids(noon).round(3).tolist()
    [0.34, 0.51]
    """

    STATE = (
        "time",
        "log_shade",
        "updates",
        "requests",
        "impressions",
        "clicks",
        "spend",
        "squares",
        "batches",
    )
    MIN_CLICKS = 5.0
    LEAP = 0.1

    def __init__(
        self,
        portfolio: Portfolio,
        step: float = 4.0,
        dither: float = 0.15,
        memory: float = 43200.0,
        min_shade: float = 0.1,
    ) -> None:
        super().__init__(portfolio)
        self.step = number("step", step, 0.0, 100.0, above=True)
        self.dither = number("dither", dither, 0.01, 0.5)
        self.memory = number("memory", memory, 0.0, above=True)
        self.min_log = float(np.log(number("min_shade", min_shade, 0.0, 1.0, above=True)))
        self.time = np.array(0.0)
        self.log_shade = np.zeros(self.n_advertisers)
        self.updates = np.array(0, dtype=np.int64)
        # Rows: updates with the lower bid, updates with the full shade.  [2, m]
        self.requests = np.zeros((2, self.n_advertisers))
        self.impressions = np.zeros((2, self.n_advertisers))
        self.clicks = np.zeros((2, self.n_advertisers))
        self.spend = np.zeros((2, self.n_advertisers))
        self.squares = np.zeros((2, self.n_advertisers))  # of an update's spend per click, weighted by clicks
        self.batches = np.zeros((2, self.n_advertisers))  # updates with clicks
        self.mean_value = self.per_advertiser(self.value)

    def _is_full(self) -> np.ndarray:
        """Who bids the full shade now: parity of the set bits of (update number, advertiser).  [m] 0 or 1"""
        bits = np.bitwise_xor(int(self.updates), np.arange(self.n_advertisers, dtype=np.int64))
        for shift in (32, 16, 8, 4, 2, 1):
            bits = bits ^ (bits >> shift)
        return bits & 1

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        row, who = self._is_full(), np.arange(self.n_advertisers)
        passed = max(now.time - float(self.time), 0.0) / self.memory
        self.time = np.array(float(now.time))
        keep = np.exp(-passed)
        spend = np.asarray(feedback.spend_micros, dtype=np.float64) / MICROS
        per_click = spend / np.maximum(feedback.clicks, 1)
        news = {
            "requests": feedback.participated,
            "impressions": feedback.impressions,
            "clicks": feedback.clicks,
            "spend": spend,
            "squares": spend * per_click,
            "batches": np.asarray(feedback.clicks) > 0,
        }
        for name, new in news.items():
            total = keep * getattr(self, name)
            total[row, who] += new
            setattr(self, name, total)
        self.updates = self.updates + 1
        slope, error = self._slope()
        sure = np.sign(slope) * np.maximum(np.abs(slope) - error, 0.0)
        leap = np.clip(self.step * passed * sure, -self.LEAP, self.LEAP)
        self.log_shade = np.clip(self.log_shade + leap, self.min_log, 0.0)

    def _slope(self) -> tuple[np.ndarray, np.ndarray]:
        """s and its standard error; 0 where too little was seen.  [m], [m]"""
        known = ((self.clicks >= self.MIN_CLICKS) & (self.requests > 0.0) & (self.spend > 0.0)).all(0)
        clicks = np.where(known, self.clicks, 1.0)
        cost = np.where(known, self.spend, 1.0) / clicks
        shown = np.where(known, self.impressions, 1.0)
        win_rate = shown / np.where(known, self.requests, 1.0)
        span = -np.log1p(-self.dither)  # ln of the bids' ratio
        e_win = np.log(win_rate[1] / win_rate[0]) / span
        e_cost = np.log(cost[1] / cost[0]) / span
        mean_cost = cost.mean(0)
        share = mean_cost / np.maximum(self.mean_value, mean_cost / np.exp(self.log_shade))
        slope = e_win * (1.0 - share) - e_cost * share
        # Impressions vary by chance; spend per click as much as it did between updates.
        variety = np.maximum(np.where(known, self.squares, 1.0) / clicks / np.square(cost) - 1.0, 1e-6)
        of_win = (1.0 / shown).sum(0) * np.square(1.0 - share)
        of_cost = (variety / np.where(known, self.batches, 1.0)).sum(0) * np.square(share)
        error = np.sqrt(of_win + of_cost) / span
        return np.where(known, slope, 0.0), error

    def bids(self, now: MarketTime) -> np.ndarray:
        lower = np.where(self._is_full() == 1, 1.0, 1.0 - self.dither)
        return self.payable * (np.exp(self.log_shade) * lower)[self.owner]

    @property
    def shade(self) -> np.ndarray:
        """What each advertiser multiplies its values with.  [m] in [min_shade, 1]"""
        return np.exp(self.log_shade)
