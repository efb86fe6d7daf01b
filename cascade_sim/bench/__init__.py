"""How fast: serving, markets, losses, metrics."""
