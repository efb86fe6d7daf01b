"""A study in one world: serve and log, train, evaluate all arms, collect the measures."""
