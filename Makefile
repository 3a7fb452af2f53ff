# Every target sets up what it needs: a machine with Python 3.11-3.13 (venv, pip)
# and make is enough. `PYTHON=python3.12 make test` chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export KERAS_BACKEND := tensorflow
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-slow lint format bench docs lock clean

demo: $(VENV)/.ready  ## the trained models at work, in under a minute
	$(BIN)/keras-vqem demo

test: $(VENV)/.ready  ## everything quick, README and docstring examples included
	$(BIN)/python -m pytest -q -n 2 --dist loadscope

test-slow: $(VENV)/.ready  ## the longer checks only
	$(BIN)/python -m pytest -q -m slow

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready .venv-peers/.ready  ## speed against the bare matmul and the peers
	$(BIN)/python recipes/benchmark_bottleneck.py --peers .venv-peers/bin/python

docs: .venv-docs/.ready  ## guides, API reference and results as one site, in site/
	.venv-docs/bin/zensical build --clean --strict

# The lock holds every version with its hash; the package itself adds nothing to it.
$(VENV)/.ready: requirements/lock.txt pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else "keras_vqem needs Python 3.11, 3.12 or 3.13, found %d.%d: run PYTHON=/path/to/python3.12 make ..." % v)'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements/lock.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

# Peers are compared with, never imported by us: an environment of their own.
.venv-peers/.ready: requirements/peers.txt pyproject.toml
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install -q -c requirements/peers.txt .[peers]
	touch $@

# Sources are read, not imported, so the site needs none of our own dependencies.
.venv-docs/.ready: requirements/docs.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip install -q --no-deps --require-hashes -r requirements/docs.txt
	touch $@

lock:  ## resolve the lock files anew (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra dev --extra serving pyproject.toml -o requirements/lock.txt
	uv pip compile -q --universal --python-version 3.11 --no-header \
	  --extra peers pyproject.toml -o requirements/peers.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --group docs -o requirements/docs.txt

clean:
	rm -rf $(VENV) .venv-docs .venv-peers out site .cache
