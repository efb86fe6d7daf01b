"""A discrete-event simulator of a multi-stage ad-ranking cascade and its auction."""

__version__ = "0.1.0"

# Changes whenever the same scenario and seed may give other results than before.
SEMANTICS = 2
