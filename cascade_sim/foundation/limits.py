"""Sizes that bound memory: what the engine works with, and what the estimate of a study's memory counts with.

Each is here once, below both: `scenario.memory` may not import the engine, and a copy would go stale
without a sound. A change of GROUPS or MAX_ROWS changes intervals.
"""

LANES = 8  # numbers that a compiled loop takes at once: rows are filled up to a multiple

GROUPS = 128  # of consecutive requests, by which payments and other vectors are kept and resampled
MAX_ROWS = 32_768  # kept per arm for resampling; in a longer evaluation a row is a few requests

DRAWN_AT_ONCE = 65_536  # ids whose numbers are drawn together
SEARCHED_AT_ONCE = 64  # users for whom the corpus is searched together
READ_AT_ONCE = 65_536  # rows of a table in a batch
COUNTED_AT_ONCE = 4_000_000  # resample counts
SUMMED_AT_ONCE = 400_000  # sums of an arm over resamples: they stay in the cache until used

KEPT_IDS = 100_000_000  # retrieved ids for users who come again; beyond, those longest away give way
MAX_LEARNED = 20_000_000  # impressions, or candidates of a student, that a model learns from
MAX_ESTIMATED = 20_000_000  # requests of a randomised log that are estimated from

COACTION_UNITS = 8  # of a co-action net's matrix, for each of its dimensions
INTTOWER_HEADS = 4  # codes of each layer of interaction towers; with its layers they fill the lanes
