# Needs Python 3.11 or newer and make, nothing else: `make setup` puts the rest into .venv.
#   make demo PYTHON=python3.12    choose the Python that .venv is made from
#   make bench ARGS='bert --train' some of it; all of it takes hours, for the others compile for minutes

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP := $(VENV)/.installed-docs
RIVALS := torch.compile,torch.compile:max-autotune,torch.compile:freezing,onnxruntime,openvino

.PHONY: setup demo bench test lint docs platforms

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "burnish needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make with PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --editable '.[demo,test,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python bench/demo.py

bench: $(BENCH_STAMP)
	$(BIN)/python -m bench --against $(RIVALS) --json bench/out/bench.json --plot bench/out/bench.svg $(ARGS)

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --editable '.[bench]'
	touch $@

# The tests start many processes, which read the bytecode of the first one, whatever the environment says.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP)
	$(BIN)/python -m pytest -m 'not slow' -n 2 --dist loadfile

# On other versions of Python and PyTorch, which take hours: see bench/platforms/__main__.py.
platforms: $(STAMP)
	$(BIN)/python -m bench.platforms $(ARGS)

lint: $(STAMP)
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check src tests bench
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

# Into site/, which is not kept. Broken links and pages that the menu leaves out are errors.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --editable '.[docs]'
	touch $@
