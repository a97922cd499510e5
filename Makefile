# Every target sets up what it needs: a fresh machine with Python 3.11+ and make is enough.
PYTHON  ?= python3
WORKERS ?= 2
VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip install -q -c constraints.txt
READY   := $(VENV)/.ready
TORCH   := $(shell grep '^torch==' constraints.txt)
# One thread a worker: two test processes with two threads each would fight over two cores.
PYTEST  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-gpu bench-gpu lint types types-page public-names zoo bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(READY)  ## train a translator that attends, and look into it (some minutes)
	@$(BIN)/regard demo

test: lint types  ## lint, types and every test but the long ones
	@$(PYTEST)

test-long: lint types  ## everything, with the long sweeps
	@$(PYTEST) -m "not gpu" --hypothesis-profile=long --timeout=3600

test-gpu:  ## what needs a CUDA device, with the Python that has it: make test-gpu PYTHON=python3
	@$(PYTHON) tests/gpu/run.py

bench-gpu:  ## attention, additive scores, training and capture on a GPU, beside their rivals (PYTHON as above)
	@PYTHONPATH=src $(PYTHON) benchmarks/h200.py

lint: $(READY)  ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)  ## mypy on src/regard
	@$(BIN)/mypy

types-page:  ## tsc on the page's modules, through npx (needs Node, and the network for TypeScript)
	@npx -y -p typescript@5.9 tsc --noEmit --checkJs --allowJs --strict --target es2022 --module es2022 \
	  --moduleResolution bundler --lib es2022,dom,dom.iterable src/regard/page/static/*.js

public-names: $(READY)  ## pin the public names anew, after a change that is meant
	@PYTHONPATH=tests $(BIN)/python tests/pin_public_names.py

zoo: $(READY)  ## every architecture of transformers beside eager attention; writes docs/models.md (some minutes)
	@PYTHONPATH=src $(BIN)/python benchmarks/zoo.py

bench: $(READY)  ## side by side with peers, printed as ratios
	@$(BIN)/python benchmarks/attend.py
	@$(BIN)/python benchmarks/text.py
	@$(BIN)/python benchmarks/training.py
	@$(BIN)/python benchmarks/serve.py

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist out regard-demo regard-lookup .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and pinned, so that no other dependency can draw in a different one.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "regard needs Python 3.11 or newer; '$(PYTHON)' was not found. Install it, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "regard needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "'$(PYTHON)' lacks the venv module. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) (once; some minutes) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) $(TORCH)
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@
