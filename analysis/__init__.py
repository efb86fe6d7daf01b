"""What is measured: pure functions from arrays to metrics, and from metrics to intervals.

Arrays follow one vocabulary: ad ids are integers with -1 as padding, a row is a request, and a metric is
either a per-request array (NaN where it is undefined) or additive parts whose sums are divided at the very
end.
"""
