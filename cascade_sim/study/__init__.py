"""A study: one world from logs and training to evaluation and results; runs and sweeps of worlds."""
