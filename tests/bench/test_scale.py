from dataclasses import replace

import pytest

from cascade_sim.bench import scale
from cascade_sim.bench.scale import Cost, Size, bench_scale, cliffs, measure_apart, scale_text, sizes
from cascade_sim.foundation.errors import UserError

LINEAR = {"set_up_s": 1.0, "new_users": 0.5, "memory_mb": 500.0}


def cost(size):
    """A search that grows with the ads, and nothing else."""
    search = size.ads / 100
    return Cost(first_visit_us=search, request_us=40.0 + 0.5 * search, **LINEAR)


def test_one_size_grows_at_a_time_and_requests_as_far_as_asked():
    few, many = sizes(1024), sizes(10**7)
    assert few[0] == many[0] == Size(**scale.FEWEST)
    assert {size.requests for size in few} == {100_000}
    assert {size.ads for size in few} == {10**4, 10**5, 10**6, 10**7}
    assert {size.users for size in few} == {10**4, 10**5, 10**6}
    assert {size.requests for size in many} == {10**5, 10**6, 10**7} and len(set(many)) == len(many)


def test_costs_that_grow_as_expected_are_no_cliff():
    rows = bench_scale(sizes(10**7), cost)
    assert len(rows) == 11 and cliffs(rows) == []


@pytest.mark.parametrize("name", ["ads", "users", "requests"])
def test_a_cliff_is_named(name):
    largest = max(getattr(size, name) for size in sizes(10**7))

    def steep(size):
        extra = 60.0 if getattr(size, name) == largest else 0.0
        plain = cost(size)
        return Cost(first_visit_us=plain.first_visit_us, request_us=plain.request_us + extra, **LINEAR)

    (told,) = cliffs(bench_scale(sizes(10**7), steep))
    assert told.startswith(f"{name} {largest:,}")


def test_a_search_that_grows_faster_than_the_ads_is_a_cliff():
    def steep(size):
        search = size.ads**1.5 / 1e4
        return Cost(first_visit_us=search, request_us=40.0 + 0.5 * search, **LINEAR)

    assert len(cliffs(bench_scale(sizes(1024), steep))) == 3


def test_every_size_has_a_line_and_one_that_is_too_large_says_so():
    def small_machine(size):
        if size.ads == 10**7 and size.probes is None:
            raise UserError("this study needs about 5.0 GB of memory")
        return cost(size) if size.probes is None else replace(cost(size), share_found=0.9)

    rows = bench_scale(sizes(1024), small_machine)
    lines = scale_text(rows).splitlines()
    assert len(lines) == 2 + len(rows) + 1
    (refused,) = [line for line in lines if "5.0 GB" in line]
    assert "10,000,000" in refused
    approximate = [line for line in lines if "90.0%" in line]
    assert len(approximate) == 2 and "10,000,000" in approximate[0] and "by a model" in approximate[1]


@pytest.mark.drill
def test_a_size_is_measured_in_a_process_of_its_own():
    found = measure_apart(Size(ads=1_200, users=50, requests=2_000, probes=8))
    assert found.new_users == pytest.approx(50 / 2_000)
    assert 0 < found.share_found < 1
    learned = measure_apart(Size(ads=1_200, users=50, requests=2_000, probes=8, by_model=True))
    assert learned.new_users == pytest.approx(50 / 2_000) and 0 < learned.share_found < 1
    assert min(found.request_us, found.first_visit_us, found.memory_mb) > 0
    with pytest.raises(UserError, match="memory"):
        measure_apart(Size(ads=2 * 10**9, users=50, requests=2_000))
