"""Questions to a finished run: what-ifs, comparisons, traces, critical bids, landscapes."""
