"""The way of a request: retrieval, pre-ranking, ranking, auction. `serve` is the only code path."""
