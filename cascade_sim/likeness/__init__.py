"""How like is one market to another? A log beside a world, and worlds that are fitted to a log."""
