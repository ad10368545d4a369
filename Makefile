# make run    sets up by itself, trains a first network and says where its pictures are
# make test   sets up by itself and runs the fast tests
# Both need Python 3.11 or newer, make and a package index, and nothing else.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; \
  done)
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
PEERS := $(patsubst benchmarks/peers/%.txt,%,$(wildcard benchmarks/peers/*.txt))
OLDEST ?= $(addprefix tests/,autodiff data kernels metrics nn plot recipes runs system training)
BENCHMARKS := $(filter-out benchmarks/side_by_side.py,$(wildcard benchmarks/*.py))

unexport PYTHONPATH PYTHONHOME

.PHONY: run test check test-all test-oldest bench docs gallery clean environment needs-data

run: environment
	@$(BIN)/everynet run lenet
	@echo "everynet is in $(BIN): type . $(BIN)/activate once to use it as above"

test: environment
	@$(PYTEST) -m 'not slow'

check: environment
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python tools/lines.py

# Also the learning tests, on real data.
test-all: needs-data environment
	@$(PYTEST)

# Most rooms with the oldest version of each package that is allowed: torch is its CUDA build on Linux.
# Packages of different years warn of each other, so that warnings are no errors there.
test-oldest:
	@$(PYTHON) tools/environment.py .oldest constraints-oldest.txt '.[test]'
	@OMP_NUM_THREADS=1 .oldest/bin/python -m pytest -n 2 --dist worksteal -m 'not slow' -W default $(OLDEST)

# Ours beside each peer, in environments of their own; the tables go to benchmarks/RESULTS.md.
bench: environment
	@for name in $(PEERS); do \
	  $(PYTHON) tools/environment.py .bench/$$name benchmarks/peers/$$name.txt \
	    || echo "the peers of $$name are left out: they cannot be installed here"; \
	done
	@for file in $(BENCHMARKS); do $(BIN)/python "$$file" || failed=1; done; exit $${failed:-0}

# The generated pages, then the whole as HTML under docs/_build.
docs: environment
	@$(BIN)/python docs/make_curriculum.py
	@$(BIN)/python docs/make_results.py
	@$(BIN)/python docs/make_blocks.py
	@$(BIN)/python docs/make_api.py
	@$(BIN)/python tools/zoo_stub.py
	@$(BIN)/python docs/make_site.py
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[docs]'
	@$(BIN)/sphinx-build -W -q docs docs/_build

# Pictures and films of the newest runs below RUNS="FOLDER ...", drawn anew where code is newer than
# they are; then those that the code of today would draw otherwise.
gallery: environment
	@$(BIN)/python docs/make_gallery.py --draw $(RUNS)
	@$(BIN)/python docs/make_results.py

clean:
	rm -rf .venv .bench .oldest docs/_build

environment:
	$(if $(PYTHON),,$(error Python 3.11 or newer was not found: install it or name it, as in make PYTHON=/path/to/python3))
	@$(PYTHON) tools/environment.py .venv constraints.txt '.[test,check]'

needs-data:
	$(if $(EVERYNET_DATA),@:,$(error make test-all trains on real data: set EVERYNET_DATA to the folder that holds mnist, fashion-mnist and cifar10))
