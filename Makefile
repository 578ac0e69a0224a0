# Everything that a checkout needs: `make quickstart` runs the main job, `make test` runs every check.
# Both set up `.venv` first. Python 3.11 is the tested version; another can be named: make PYTHON=python3.12 install

PYTHON ?= python3.11
BIN := .venv/bin
WORKERS ?= 2
PACKAGES := $(sort $(wildcard plugins/*/pyproject.toml) $(wildcard connectors/*/pyproject.toml))
EDITABLE := -e .[dev,bench] $(foreach package,$(PACKAGES),-e $(dir $(package)))
INSTALLED := .venv/.installed

.PHONY: install quickstart tiny test lint types pytest bench clean

install: $(INSTALLED)
	$(BIN)/python -m miles_plugin_smollm2.fetch
	$(BIN)/python -m miles_plugin_families.fetch

quickstart: install
	$(BIN)/miles run recipes/quickstart.yaml

tiny: $(INSTALLED)
	$(BIN)/miles run recipes/tiny.yaml

test: install lint types pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy

# Each worker computes on one thread: two that both take every core wait for each other at each tensor.
pytest: $(INSTALLED)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

bench: install
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/schedule.py

$(INSTALLED): pyproject.toml constraints.txt $(PACKAGES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv, which takes some minutes"
	$(BIN)/python -m pip install --quiet -c constraints.txt $(EDITABLE)
	touch $@

clean:
	rm -rf .venv build *.egg-info plugins/*/*.egg-info connectors/*/*.egg-info
