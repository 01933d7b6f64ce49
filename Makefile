# Everything a person or CI runs. Each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
DEMO ?= runs/demo
TRIALS ?= 1
SEED ?= 0
SECONDS ?= inf
BIN := $(VENV)/bin

.PHONY: install demo test test-fast test-long faults sabotage matrix lint bench docs printouts package clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "asker needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: install
	$(BIN)/asker reproduce --plan quick --output $(DEMO)
	@echo; echo "A circle in clutter with unknown noise, from a poor initial guess, no settings (examples/unknown_noise.py)"
	$(BIN)/python examples/unknown_noise.py $(DEMO)/unknown_noise.png

test: install
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m "not long"

# The slowest tests.
test-long: install
	$(BIN)/python -m pytest --numprocesses 2 -m long

# The fast tests, about a minute.
test-fast: install
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m "not slow and not long"

# Fault injection: damaged files, results, checkpoints, caches, signals; one hour.  Shorter: make faults TRIALS=0.1 SECONDS=600
faults: install
	$(BIN)/python tools/faults --trials $(TRIALS) --seed $(SEED) --seconds $(SECONDS)

# Mutation test of the short campaign: it must detect deliberate faults.
sabotage: install
	$(BIN)/python tools/mutation.py

# The fast tests and the demo on every installed Python (PYTHONS="..." names others), oldest and newest versions.
matrix:
	$(PYTHON) tools/matrix.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/reprojection_loop.py
	@mkdir -p runs
	$(BIN)/python benchmarks/bundle.py --json runs/bench.json

# Source and wheel in dist/; the wheel is then installed and used in a clean environment.
package: install
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tools/check_wheel.py dist

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# Run the code on all pages and rewrite the printouts that differ; draw the figures.  PAGES="docs/index.md" for some.
printouts: install
	$(BIN)/python tools/printouts.py $(PAGES)
	$(BIN)/python tools/printouts.py --figures

$(VENV)/docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) build dist site .cache .pytest_cache .mypy_cache .ruff_cache
