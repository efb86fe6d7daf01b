import warnings

import numpy as np

from cascade_sim.analysis.metrics.ratio import divide


def test_a_zero_or_missing_denominator_gives_nan_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = divide([1.0, 0.0, 3.0, 1.0], [0.0, 0.0, 4.0, np.nan])
    assert np.isnan(result[[0, 1, 3]]).all()
    assert result[2] == 3 / 4


def test_shapes_broadcast():
    assert divide([[2.0], [4.0]], [1.0, 2.0]).tolist() == [[2, 1], [4, 2]]
