# make demo   train four encodings short and test them long: the table and the figure
# make test   the whole test suite
# make lint   ruff
# PYTHON=python3.12 make …   another interpreter

PYTHON ?= python3
VENV ?= .venv
# Huge pages for malloc: faster training on a CPU, the same numbers. Override with GLIBC_TUNABLES=…
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

.PHONY: demo test lint clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

$(VENV)/run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'ERROR: $(PYTHON) is older than 3.11 (name a newer one: make PYTHON=python3.12 ...)' >&2; exit 2; }
	@echo 'installing into $(VENV) (one to two minutes)' >&2
	@start=$$(date +%s); \
	$(PYTHON) -m venv $(VENV) && \
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e . && \
	echo $$(( $$(date +%s) - start )) > $@

$(VENV)/test: $(VENV)/run
	@echo 'installing the test extra' >&2
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]' && touch $@

demo: $(VENV)/run
	@INSTALL_SECONDS=$$(cat $(VENV)/run) $(VENV)/bin/python scripts/demo.py $(ARGS)

test: $(VENV)/test
	$(VENV)/bin/python -m pytest $(ARGS)

lint: $(VENV)/test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
