# Needs Python 3.11 or newer and make, nothing else: `make setup` puts the rest into .venv.
#   make demo PYTHON=python3.12    choose the Python that .venv is made from

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "burnish needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make with PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --editable '.[demo,test,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python bench/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not slow'

lint: $(STAMP)
	$(BIN)/python -m ruff check
	$(BIN)/python -m pyright --pythonpath $(BIN)/python
