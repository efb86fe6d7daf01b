"""Audit of a log: are its winners and prices those of the rule it is said to follow, and of which if not?"""
