"""Auction logs: import, store, replay, audit, fitted worlds and their fidelity, export."""
