"""Retrievers: candidates of a request out of the corpus."""
