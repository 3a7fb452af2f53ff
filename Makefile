# Every target sets up what it needs: a machine with Python 3.11-3.13 (venv, pip)
# and make is enough. `PYTHON=python3.12 make test` chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
LOCKED := -m pip install -q --no-deps --require-hashes
export KERAS_BACKEND := tensorflow

.PHONY: demo test test-slow soak lint format bench docs dist dist-latest lock clean

demo: $(VENV)/.ready  ## the trained models at work, in under a minute
	$(BIN)/keras-vqem demo

test: $(VENV)/.ready  ## everything quick, README and docstring examples included
	$(BIN)/python -m pytest -q -rfEs -n 2 --dist loadscope --durations=25

# In two runs: TensorFlow keeps what it compiled, 20 GB by the end of a single one.
SLOW := -m pytest -q -rfEs -n 2 --dist loadscope --durations=25 -m 'slow and not soak'
test-slow: $(VENV)/.ready  ## the longer checks only
	$(BIN)/python $(SLOW) tests/conformance
	$(BIN)/python $(SLOW) --ignore tests/conformance

soak: $(VENV)/.ready  ## what takes too long for .ci/run; writes docs/reliability.md
	RELIABILITY_PAGE=docs/reliability.md $(BIN)/python -m pytest -q -rfEs --durations=25 -m soak

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready $(PEERS)/.ready  ## speed against the bare matmul and the peers
	$(BIN)/python recipes/benchmark_bottleneck.py --peers $(PEERS)/bin/python --members

docs: .venv-docs/.ready  ## guides, API reference and results as one site, in site/
	.venv-docs/bin/zensical build --clean --strict

dist: $(VENV)/.ready  ## wheel and sdist, tried in an empty environment
	PYTHON=$(BIN)/python .ci/dist dist

dist-latest: $(VENV)/.ready  ## the same with the newest versions of all dependencies
	PYTHON=$(BIN)/python .ci/dist dist --latest

# The lock holds every version with its hash, so pip resolves nothing. One package has
# no wheel: what builds it is locked too, and installed first.
$(VENV)/.ready: requirements/build.txt requirements/lock.txt pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else "keras_vqem needs Python 3.11, 3.12 or 3.13, found %d.%d: run PYTHON=/path/to/python3.12 make ..." % v)'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(LOCKED) -r requirements/build.txt
	$(BIN)/python $(LOCKED) --no-build-isolation -r requirements/lock.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $@

# Peers are compared with, never imported by us: an environment of their own. A complete
# list too, without hashes: torch has builds for CPUs and for GPUs. `pip check` may
# miss what peers-left-out.txt names, and nothing else.
$(PEERS)/.ready: requirements/build.txt requirements/peers.txt requirements/peers-left-out.txt
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/python $(LOCKED) -r requirements/build.txt
	$(PEERS)/bin/python -m pip install -q --no-deps --no-build-isolation -r requirements/peers.txt
	$(PEERS)/bin/python -m pip check | awk \
	  'NR == FNR { left_out[$$1 ","]; next } { said = 1 } \
	   /^No broken/ || ($$3 == "requires" && $$4 in left_out) { next } \
	   { print; broken = 1 } END { exit broken || !said }' requirements/peers-left-out.txt -
	touch $@

# Sources are read, not imported, so the site needs none of our own dependencies.
.venv-docs/.ready: requirements/docs.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python $(LOCKED) -r requirements/docs.txt
	touch $@

# uv keeps the versions that the files have; delete them for the newest.
lock:  ## resolve the lock files anew (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra dev --extra serving pyproject.toml -o requirements/lock.txt
	echo setuptools wheel | tr ' ' '\n' | uv pip compile -q --universal \
	  --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  -c requirements/lock.txt - -o requirements/build.txt
	uv pip compile -q --universal --python-version 3.11 --no-header --extra peers \
	  --excludes requirements/peers-left-out.txt pyproject.toml -o requirements/peers.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --group docs -o requirements/docs.txt

clean:
	rm -rf $(VENV) $(PEERS) .venv-docs build dist out site .cache
