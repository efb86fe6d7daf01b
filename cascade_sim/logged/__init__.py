"""Logged auctions of somebody's own market: what a log is made of, and the sealed store that holds one."""

from cascade_sim.logged.format import About, Level
from cascade_sim.logged.store import LoggedStore, StoreWriter, open_store, write_store

__all__ = ["About", "Level", "LoggedStore", "StoreWriter", "open_store", "write_store"]
