# `make run` and `make test` do all the set-up they need, once, into .venv.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: run test fast test-gpu lint bench picture figures tutorials docs trained readme-table clean

run: $(READY)  ## the paper's synthetic experiment in small: a table and a report, in a few minutes
	$(VENV)/bin/eirehn reproduce synthetic --quick

test: lint $(READY)  ## everything: style, types, all tests
	$(PY) -m pytest -n 2

fast: $(READY)  ## the tests to run all day
	$(PY) -m pytest -n 2 --dist loadfile -m "not slow"

test-gpu:  ## what runs on a GPU, with the python of your environment (a torch for CUDA, the dev extra)
	$(PYTHON) -m pytest -n auto --maxprocesses 14 --dist worksteal -m gpu

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(READY)  ## speed of the layers beside the plain path and torch's LSTM
	$(PY) benchmarks/speed.py

picture: $(READY)  ## the picture in the README
	$(PY) examples/elastic_gate.py --out docs/images/elastic-gate.png

figures: $(READY)  ## Figures 2 and 3 of the paper, in docs/how-it-works.md
	$(PY) docs/figures/draw.py --out docs/images

tutorials: $(READY)  ## the outputs of the notebooks in docs/tutorials; needs the data of `eirehn data har` and `ptb`
	$(PY) docs/tutorials/execute.py

docs: $(READY)  ## the documentation site, in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

trained: $(READY)  ## the models that come with the package, in an hour; needs the data of `eirehn data har`
	$(VENV)/bin/eirehn train --recipe har-best --seed 0 --out runs/trained/har-best
	$(VENV)/bin/eirehn train --recipe synthetic-best --seed 0 --out runs/trained/synthetic-best
	$(PY) examples/trained_models.py runs/trained/har-best runs/trained/synthetic-best

readme-table: $(READY)  ## the tables of README and documentation from results/
	$(PY) examples/readme_table.py

# torch comes first and pinned: asked for by a range, it would bring a build for GPUs, gigabytes of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eirehn needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet torch==2.13.0
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) out runs site dist build .pytest_cache .mypy_cache .ruff_cache
