# Three commands do everything on a fresh machine with Python 3.11 or newer:
#
#   make chat                     make a virtual environment, install, start the chat
#   make chat MODEL=DIR|ID        the same with a local checkpoint or another model of the hub
#   make check                    make a virtual environment, install, run all checks and tests
#   make mutants                  change the engine in thousands of small ways, and see which of them no test notices

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
MODEL  ?=
ARGS   ?=

# The packages last installed are those of pyproject.toml; the stamps say so.
INSTALLED     := $(VENV)/installed
INSTALLED_DEV := $(VENV)/installed-dev

# What clang-format keeps: kernels, the emulator that runs them on a CPU, its tests' kernels.
CPP_FILES := kernels/*/*.cu kernels/*/*.cuh tools/emulator/*/*.h tools/emulator/*/*.cpp tests/tools/emulated_kernels/*.cu

.PHONY: help chat check check-source check-kernels format mutants clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

chat: $(INSTALLED)
	$(BIN)/pagedchat $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# The source is read by one core while kernels are compiled by the others. CI has two cores; a third worker runs
# while those that test the screen wait for it, and what a module prepares is prepared in one of them.
check: $(INSTALLED_DEV)
	$(MAKE) --no-print-directory -j 2 check-source check-kernels
	$(BIN)/python -m pytest -n 3 --dist worksteal

check-source: $(INSTALLED_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/lint-imports
	$(BIN)/mypy

check-kernels: $(INSTALLED_DEV)
	$(BIN)/pagedchat doctor --compile

format: $(INSTALLED_DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP_FILES)

# All cores for some minutes; ARGS=block_pool for one file.
mutants: $(INSTALLED_DEV)
	$(BIN)/python -m pip install --quiet --group mutants
	$(BIN)/python -m tools.mutants $(ARGS)

clean:
	rm -rf build dist mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Dependency groups came with pip 25.1; the pip that venv brings may be older.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else 1)' || \
		{ echo "pagedchat needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --editable .
	@touch $@

$(INSTALLED_DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --editable . --group dev
	@touch $@ $(INSTALLED)
