# Three commands do everything on a fresh machine with Python 3.11 or newer:
#
#   make chat                     make a virtual environment, install, start the chat
#   make chat MODEL=DIR|ID        the same with a local checkpoint or another model of the hub
#   make check                    make a virtual environment, install, run all checks and tests
#   make check-deep               all tests with every case of the longest ones (tests/deep.py)
#   make mutants                  change the engine in thousands of small ways, and see which of them no test notices
#
# What they install, and who tests that:
#
#   make lock                     write requirements.lock anew: the newest of everything, with hashes
#   make audit                    ask for known vulnerabilities of what requirements.lock names
#   make coverage                 tests of engine, service and chat, with the share of branches that they take
#   make check-oldest             tests with the oldest release of everything that pyproject.toml allows
#   make check-newest             the same with the newest; PYTHON=python3.13 and TESTS=tests/tui choose

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
MODEL  ?=
ARGS   ?=
TESTS  ?= tests

# The packages last installed are those of pyproject.toml; the stamps say so.
INSTALLED     := $(VENV)/installed
INSTALLED_DEV := $(VENV)/installed-dev

# Checks run with the versions of the lock, but not with its hashes: a torch built for CPUs does as well.
LOCKED_VERSIONS := $(VENV)/locked-versions.txt

# Torch stays where CI finds a build for CPUs.
LOCKED_TORCH := torch==2.13.0

# Every process of the tests would compile what it imports once more.
unexport PYTHONDONTWRITEBYTECODE

# Parts whose own tests must take nearly every branch: tools/coverage_floor.py says how many.
COVERED := engine service chat

# Take three times as long where branches are counted, and none that other tests do not.
LONG_WALKS := tests/engine/test_random_walk.py tests/engine/test_properties.py
COUNTED    := $(filter-out $(LONG_WALKS),$(wildcard $(COVERED:%=tests/%/*)))

# What clang-format keeps: kernels, the emulator that runs them on a CPU, its tests' kernels.
CPP_FILES := kernels/*/*.cu kernels/*/*.cuh tools/*/*.cpp tools/emulator/*/*.h tools/emulator/*/*.cpp tests/tools/emulated_kernels/*.cu

.PHONY: help chat check check-deep check-source check-kernels check-collection check-oldest check-newest coverage mutants lock audit format clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

chat: $(INSTALLED)
	$(BIN)/pagedchat $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# The source is read by one core while kernels are compiled by the others. CI has two cores; two more workers run
# while those that test the screen wait for it (of a part of them, 3 took 93 s, 4 took 87, 5 took 92), and what a
# module prepares is prepared in one of them. They all collect all tests, and find bytecode: in a fresh environment
# each of them would compile all that is imported, 81 s of processor time together instead of 37.
check: $(INSTALLED_DEV)
	$(MAKE) --no-print-directory -j 2 check-source check-kernels check-collection
	$(BIN)/python -m pytest -n 4 --dist worksteal $(COUNTED:%=--ignore=%)
	$(MAKE) --no-print-directory coverage

# Some minutes longer than `check`, which runs a covering set of the cases of the longest tests.
check-deep: $(INSTALLED_DEV)
	$(BIN)/python -m pytest --deep -n 4 --dist worksteal $(TESTS)

check-source: $(INSTALLED_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/lint-imports
	$(BIN)/mypy

check-kernels: $(INSTALLED_DEV)
	$(BIN)/pagedchat doctor --compile

check-collection: $(INSTALLED_DEV)
	$(BIN)/python -m pytest --collect-only --quiet >$(VENV)/collected.txt || { tail -n 60 $(VENV)/collected.txt; exit 1; }

# By two workers: few of these wait for anything (61 s, where four took 65).
coverage: $(INSTALLED_DEV)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal $(COVERED:%=tests/%) $(LONG_WALKS:%=--ignore=%)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o - | $(BIN)/python -m tools.coverage_floor $(COVERED)

# An environment of its own for each end. On Linux torch brings its CUDA libraries, gigabytes of them, unless there is
# a build for CPUs to be had: UV_TORCH_BACKEND=cpu fetches that.
check-oldest: RESOLUTION := lowest-direct
check-newest: RESOLUTION := highest
check-oldest check-newest: check-%: $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) .venv-$*
	$(BIN)/uv pip compile --quiet pyproject.toml --resolution $(RESOLUTION) --python .venv-$*/bin/python \
		--output-file .venv-$*/requirements.txt
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python -r .venv-$*/requirements.txt --group dev
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python --no-deps --editable .
	.venv-$*/bin/python -m pytest -n 4 --dist worksteal $(TESTS)

lock: $(BIN)/uv
	echo "$(LOCKED_TORCH)" | $(BIN)/uv pip compile --quiet pyproject.toml --constraint - --upgrade \
		--universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" --output-file requirements.lock

# Strict: a package of which nothing could be asked is no good news.
audit: $(BIN)/uv
	$(BIN)/pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict

format: $(INSTALLED_DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP_FILES)

# All cores for some minutes; ARGS=block_pool for one file.
mutants: $(INSTALLED_DEV)
	$(BIN)/python -m pip install --quiet --group mutants
	$(BIN)/python -m tools.mutants $(ARGS)

clean:
	rm -rf build dist mutants .coverage .coverage.* .venv-oldest .venv-newest
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Dependency groups came with pip 25.1; the pip that venv brings may be older.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else 1)' || \
		{ echo "pagedchat needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --editable .
	@touch $@

$(INSTALLED_DEV): pyproject.toml $(LOCKED_VERSIONS)
	$(BIN)/python -m pip install --editable . --group dev --constraint $(LOCKED_VERSIONS)
	@touch $@ $(INSTALLED)

$(LOCKED_VERSIONS): requirements.lock | $(BIN)/python
	sed -n 's/^\([a-z0-9].*[^ ]\) *\\$$/\1/p' requirements.lock >$@

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --group supply
