"""Counterfactuals of a finished run: what-ifs, bounds, critical bids, bid landscapes."""
