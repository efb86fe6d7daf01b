"""Logs of auctions: import, export, audit, and worlds fitted to them."""
