# Everything below sets itself up: a virtual environment in .venv with the exact packages of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Of the many processes of a run or of the tests only the first compiles a file.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test drill drill-nightly drill-machines lint bench docs clean
.DEFAULT_GOAL := run

$(READY): pyproject.toml setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

run: $(READY)
	$(BIN)/python -m cascade_sim run scenarios/ads.yaml

test: $(READY)
	$(BIN)/python -m cascade_sim.foundation.precompile
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not drill"

# Bugs planted in a copy of the source; runs that are killed, raced and out of disk; the wheel in an environment
# of its own; the site and the blocks of every page of docs; intervals that must cover, bidders that must learn,
# and the long list of cases of what `make test` tries with a few.
# Then the hostile drill, its draws from SEED: a few of each kind or, with BUDGET=seconds, as many as fit.
SEED ?= 1
# Tests of logs, replays and fits again, with kernels of their own that check every index.
BOUNDED = tests/logs/store tests/logs/replay/test_small_pages.py tests/logs/replay/test_budgets.py \
	tests/logs/fit/test_fitted_world.py tests/logs/audit/test_replay.py tests/logs/importing/test_importer.py
drill: $(READY)
	$(BIN)/python -m cascade_sim.foundation.precompile
	$(BIN)/python -m pytest -n 2 --dist loadfile -m drill
	kernels=$$(mktemp -d) && trap 'rm -rf "$$kernels"' EXIT && NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$$kernels \
		XDG_CACHE_HOME=$$kernels $(BIN)/python -m pytest -n 2 --dist loadfile -m "not drill" --every-case $(BOUNDED)
	$(BIN)/python -m tests.drills.hostile --seed $(SEED) $(if $(BUDGET),--budget $(BUDGET)) --jobs 2

# Everything that could be done to a run, many times: half an hour. KEEP=file goes on with what a stopped one has.
drill-nightly: $(READY)
	$(BIN)/python -m tests.drills.hostile --seed $(SEED) --nightly --jobs 2 $(if $(KEEP),--resume $(KEEP))

# The same work on this machine, on one Ray and on three host names of which one is killed KILLS times. It kills
# by the clock, so it has its own target.
KILLS ?= 10
drill-machines: $(READY)
	$(BIN)/python tests/drills/many_machines.py --kills $(KILLS) --seed $(SEED)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/house/one_tree.py .mypy_tree
	cd .mypy_tree && ../$(BIN)/mypy --config-file ../pyproject.toml -p cascade_sim

bench: $(READY)
	$(BIN)/python -m cascade_sim bench

# The site, in build/docs; warnings are errors.
docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	$(BIN)/python tests/house/blocks.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .mypy_tree docs/made
