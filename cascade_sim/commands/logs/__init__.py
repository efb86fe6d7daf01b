"""Logs of auctions: in, out, held again, and a world fitted to them."""
