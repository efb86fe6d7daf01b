"""What this is: a click model of one's own. What to do with it: change how users look at a page, and name the
class in a scenario (its path from the working folder or beside the scenario):

    market: {users: {click_model: "my_user.py:RelevanceSeeker", options: {patience: 0.95}}}

Arrays are [R, k]: requests of a window, slots from the top. Nothing here may keep state or draw numbers: the
engine hands in the draws, so that every arm has the same ones and a resumed run writes the same bytes.
"""

import numpy as np


class RelevanceSeeker:
    """Scans from the top and goes on only while the page seems worth it.

    After slot j with the true CTR q_j and no click, the user looks at the next one with probability
    g_j = patience * (floor + (1 - floor) * q_j / (q_j + taste)):  good ads keep users on the page, bad ones
    drive them off. After a click they come back to the page with probability `returns`. With r_1 = 1
    r_{j+1} = r_j * ((1 - q_j) * g_j + q_j * returns),   P(click on j) = r_j * q_j.
    An empty slot is passed over.
    """

    # The engine gives the slot effects of the world [>= k]; what follows comes from `options`.
    def __init__(
        self,
        slot_effects: np.ndarray,
        patience: float = 0.95,
        floor: float = 0.5,
        taste: float = 0.05,
        returns: float = 0.5,
    ) -> None:
        # Not used here: how much a slot is seen follows from the ads above it. Auctions and training go on
        # with the slot effects of the world, so the platform's idea of a slot and the users' differ.
        self.slot_effects = slot_effects
        options = {"patience": patience, "floor": floor, "returns": returns}
        for name, value in options.items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"option {name}: expected a number in [0, 1], found {value!r}")
        if not taste > 0.0:
            raise ValueError(f"option taste: expected a number above 0, found {taste!r}")
        self.patience, self.floor, self.taste, self.returns = patience, floor, taste, returns

    def goes_on(self, true_ctr: np.ndarray) -> np.ndarray:
        """g: the probability of looking further after an ad that was not clicked."""
        return self.patience * (self.floor + (1.0 - self.floor) * true_ctr / (true_ctr + self.taste))

    # The exact mean of `clicks` over the draws. Reports and training compare with it, so it must agree.
    def expected(self, true_ctr: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """P(click) of every slot, [R, k] float64; 0 where `shown` is False.

        true_ctr: the probability of a click on a slot that is looked at, fatigue included.
        """
        found = np.zeros(true_ctr.shape)
        reached = np.ones(len(true_ctr))
        for j in range(true_ctr.shape[1]):
            ctr, is_there = true_ctr[:, j], shown[:, j]
            found[:, j] = np.where(is_there, reached * ctr, 0.0)
            further = (1.0 - ctr) * self.goes_on(ctr) + ctr * self.returns
            reached = np.where(is_there, reached * further, reached)
        return found

    # What happens, from two uniform numbers in (0, 1) per slot. An event of probability p is `u < p`.
    def clicks(
        self, true_ctr: np.ndarray, shown: np.ndarray, u_click: np.ndarray, u_continue: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(clicked, examined), both [R, k] bool. Clicked slots are examined, examined ones are filled."""
        clicked, examined = np.zeros(true_ctr.shape, bool), np.zeros(true_ctr.shape, bool)
        reached = np.ones(len(true_ctr), bool)
        for j in range(true_ctr.shape[1]):
            ctr, is_there = true_ctr[:, j], shown[:, j]
            examined[:, j] = reached & is_there
            clicked[:, j] = examined[:, j] & (u_click[:, j] < ctr)
            further = np.where(clicked[:, j], self.returns, self.goes_on(ctr))
            reached &= (u_continue[:, j] < further) | ~is_there
        return clicked, examined
