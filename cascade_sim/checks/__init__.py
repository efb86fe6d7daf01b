"""Checkers that users run on their own classes, and the auction against its reference."""
