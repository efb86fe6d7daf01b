"""Questions to finished runs: why, what if, and what would another policy have earned?"""
