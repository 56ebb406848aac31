# nightgate: set up, check, run. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help night test quick lint setup trees relock clean

PYTHON ?= python3
# Some containers set it. Every process would compile all that it imports again, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
# What mypy checks; a room that a checkout does not have is left out.
ROOMS := $(wildcard agents judge accuracy_gate engine cards kernels ledger upstream setup contracts benchmarks run_night.py)

help:
	@echo "make night   set up, then the embedded night: a real vLLM on whatever this machine has, to a report"
	@echo "make test    set up, then ruff, mypy and every test (starts real engines)"
	@echo "make quick   the same without real engines, their interpreter and whole nights (about a minute and a half)"
	@echo "make lint    set up, then ruff and mypy"
	@echo "make setup   set up only: .venv, .models and, where no GPU engine is found, .venv-engine (4 to 7 GB)"
	@echo "make trees   real vLLM and AITER trees for the tests that run their own lookups (130 MB to download)"
	@echo "make clean   remove what set-up made"

night: setup
	.venv/bin/python run_night.py configs/nights/first_night.yaml

# Whole nights against the stand-in mostly wait, so three run side by side (their order: tests/conftest.py); so do two
# engines that nobody measures. The other real engines run alone, one after the other.
test: trees quick
	.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m whole_night
	.venv/bin/python -m pytest -n 2 --dist loadfile -m engine_python
	.venv/bin/python -m pytest -m real_engine

# Three on two cores: a third of the time these tests wait for a process, a clock or a time limit.
quick: lint
	.venv/bin/python -m pytest -n 3 --dist loadfile -m "not real_engine and not engine_python and not whole_night"

lint: setup
	.venv/bin/ruff check .
	.venv/bin/mypy $(ROOMS)

setup:
	@$(PYTHON) -m setup.install

# Without a network these are not there, and the tests that want them skip and say so.
trees: setup
	-@.venv/bin/python -m tests.real_trees

relock:
	@PYTHON=$(PYTHON) setup/relock.sh

clean:
	rm -rf .venv .venv-engine .models .stamps .engine-python .cache
