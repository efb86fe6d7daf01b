"""Logged auctions as a world: replay, observed clicks, imputation, budgets, fitted worlds."""
