"""What this is: a guard of revenue in your own tests. What to do with it: put it into your suite, name your
scenario.

Once: `pytest --update-revenue-baseline` writes revenue.json; keep it beside your code. From then on a change
that moves what the auction earns fails this test, with the metric, the size of the move and its interval.
"""

import pytest


@pytest.mark.auction_revenue(scenario="scenario.yaml", against="revenue.json", tolerance="0.5%")
def test_a_change_of_code_does_not_move_revenue(auction_revenue):
    auction_revenue()
