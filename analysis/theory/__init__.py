"""Which losses lead to which orders: regret bounds, counter-examples."""
