"""Sections of a report on a market: its days, bidders, servers, trials, and models that learn."""
