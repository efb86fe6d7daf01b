"""A market in simulated time: windows, budgets, bidders, servers, late clicks, retraining."""
