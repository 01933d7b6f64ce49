# Everything a person or CI runs. Each target sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint bench docs package clean

install: .venv/installed

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "asker needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: install
	$(BIN)/asker reproduce --plan quick --output runs/demo

test: install
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/reprojection.py
	@mkdir -p runs
	$(BIN)/python benchmarks/bundle.py --json runs/bench.json

# Source and wheel into dist/; then the wheel is installed in a clean environment and used from there.
package: install
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tests/package.py dist

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@

clean:
	rm -rf .venv build dist site .cache .pytest_cache .mypy_cache .ruff_cache
