"""Target CPA: pay no more than so much per conversion, on average."""

import numpy as np

from cascade_sim.agents.bidding import MICROS, Bidder, Feedback, MarketTime, Portfolio, number


class TargetCpa(Bidder):
    """Target CPA: bid = correction * CPA* * mean_pcvr, CPA* = cpa, or value / mean_pcvr (bid = value).

    The correction follows the realised CPA, spend / conversions, of each advertiser:
    ln correction <- clip(ln correction + k * (conversions * CPA* - due) / scale, -ln max, ln max)
    due: spend whose conversions should have arrived. Conversions are `delay` seconds late on average and a
    share `arriving` of them arrives at all: of what waits, 1 - exp(-dt / delay) falls due in dt seconds.
    scale: due spend of the last `memory` seconds (exponential) plus `prior` conversions' worth, so early
    chance counts little. At rest conversions * CPA* = due, so the realised CPA is the target.
    Without spend or conversions nothing changes. mean_pcvr 0: bid 0. Days make no difference.

    Args:
        portfolio: values, owners and budgets of the advertisers.
        cpa: target cost per conversion in units of currency; None: value / mean_pcvr of each ad.
        k: gain, in (0, 10].
        prior: weight of the prior, in conversions, > 0.
        memory: time constant of the scale in seconds, > 0.
        delay: mean conversion delay in seconds, >= 0.
        arriving: share of conversions that arrive at all, in (0, 1].
        max_correction: upper bound of the correction and of its inverse, in (1, 1000].

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> TargetCpa(portfolio, cpa=2.0).bids(noon).tolist()
    [0.2, 0.4]
    """

    STATE = ("log_correction", "waiting", "scale", "time")

    def __init__(
        self,
        portfolio: Portfolio,
        cpa: float | None = None,
        k: float = 1.0,
        prior: float = 20.0,
        memory: float = 86400.0,
        delay: float = 0.0,
        arriving: float = 1.0,
        max_correction: float = 3.0,
    ) -> None:
        super().__init__(portfolio)
        pcvr = np.asarray(portfolio.mean_pcvr, dtype=np.float64)
        has_pcvr = (pcvr > 0.0) & (self.payable > 0.0)
        own = self.value / np.where(pcvr > 0.0, pcvr, 1.0)  # [a] CPA at which a click is worth its value
        target = own if cpa is None else np.full(len(pcvr), number("cpa", cpa, 0.0, above=True))
        self.base = np.where(has_pcvr, self.payable if cpa is None else target * pcvr, 0.0)  # [a]
        # One account per advertiser: of its ads, those with the most conversions per click count most.
        weight = self.per_advertiser(np.where(pcvr > 0.0, pcvr, 0.0))
        worth = self.per_advertiser(np.where(pcvr > 0.0, target * pcvr, 0.0))
        self.target = MICROS * worth / np.where(weight > 0.0, weight, 1.0)  # [m] micro-units per conversion
        self.k = number("k", k, 0.0, 10.0, above=True)
        self.prior = number("prior", prior, 0.0, above=True)
        self.memory = number("memory", memory, 0.0, above=True)
        self.delay = number("delay", delay, 0.0)
        self.arriving = number("arriving", arriving, 0.0, 1.0, above=True)
        self.max_log = float(np.log(number("max_correction", max_correction, 1.0, 1e3, above=True)))
        self.log_correction = np.zeros(self.n_advertisers)
        self.waiting = np.zeros(self.n_advertisers)
        self.scale = np.zeros(self.n_advertisers)
        self.time = np.array(0.0)

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        seconds = max(now.time - float(self.time), 0.0)
        self.time = np.array(float(now.time))
        waiting = self.waiting + self.arriving * np.asarray(feedback.spend_micros, dtype=np.float64)
        due = waiting if self.delay == 0.0 else waiting * -np.expm1(-seconds / self.delay)
        self.waiting = waiting - due
        self.scale = self.scale * np.exp(-seconds / self.memory) + due
        size = self.scale + self.prior * self.target
        gain = self.k * (feedback.conversions * self.target - due) / np.where(size > 0.0, size, 1.0)
        self.log_correction = np.clip(self.log_correction + gain, -self.max_log, self.max_log)

    def bids(self, now: MarketTime) -> np.ndarray:
        return self.base * np.exp(self.log_correction)[self.owner]
