"""Studies: from a scenario to a report, one setting or many."""
