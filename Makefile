# The verbs of dystruct. Each makes .venv and installs what it needs; a second run installs nothing.
#
#   make demo        decode a held-out word problem with the embedded model
#   make test        run the tests
#   make lint        check style and types
#   make bench       measure speed
#   make notebooks   execute the notebooks in place, two at a time
#   make reference   write the API reference, from the docstrings, to build/reference
#
# `make PYTHON=/path/to/python` chooses the interpreter that .venv is made with.

# Threads that wait for each other stand still while another program has one of their cores: on a busy machine that costs
# many times what the embedded model gains by a second one.
export OMP_NUM_THREADS ?= 1

# Write a dollar sign as $$.
export DEMO_PROMPT = In a set of magician's cards, there are 20 red cards, and 65% more blue cards. yellow cards are as many as the sum of red and blue cards. How many cards of all mentioned colors are there?
DEMO_OPTIONS = --structure sample --passes share --max-new-tokens 128
# a process for each core, four at the most: each loads torch; the one that is idle takes tests of the others
TEST_OPTIONS = --numprocesses logical --maxprocesses 4 --dist worksteal
BENCHMARKS = dystruct.inference.bench dystruct.decoding.bench
NOTEBOOKS = $(sort $(wildcard notebooks/*.ipynb))
REFERENCE = \
    dystruct.decoding dystruct.decoding.calibration dystruct.decoding.evaluation.against \
    dystruct.decoding.evaluation.answers dystruct.decoding.evaluation.comparison dystruct.decoding.evaluation.joined \
    dystruct.decoding.evaluation.local dystruct.decoding.evaluation.paired dystruct.decoding.evaluation.recorded \
    dystruct.decoding.evaluation.run_folder dystruct.decoding.evaluation.run_record \
    dystruct.decoding.evaluation.settings dystruct.decoding.evaluation.statistics \
    dystruct.decoding.evaluation.structures dystruct.decoding.evaluation.summary dystruct.decoding.evaluation.sweep \
    dystruct.decoding.evaluation.sweep_making dystruct.decoding.evaluation.sweep_state \
    dystruct.decoding.evaluation.tables dystruct.decoding.replay dystruct.decoding.tiny.problems \
    dystruct.decoding.tiny.scoring dystruct.decoding.unmasking dystruct.inference dystruct.inference.arviz_tree \
    dystruct.inference.calibration dystruct.inference.checks dystruct.inference.concentration \
    dystruct.inference.hyper dystruct.inference.plots dystruct.inference.pyro_exact dystruct.inference.records \
    dystruct.inference.rules dystruct.model

PYTHON = python3.11 python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: demo test lint bench notebooks reference
.NOTPARALLEL: # one pip at a time

demo: $(VENV)/runtime.stamp
	@$(BIN)/dystruct generate $(DEMO_OPTIONS) "$$DEMO_PROMPT"

test: $(VENV)/dev.stamp
	@$(BIN)/pytest $(TEST_OPTIONS)

# The links have the shape of the installed namespace: mypy does not see through an editable install.
lint: $(VENV)/dev.stamp
	@mkdir -p build/namespace/dystruct
	@for folder in model inference decoding; do ln -sfn ../../../$$folder build/namespace/dystruct/$$folder; done
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

bench: $(VENV)/runtime.stamp
	@set -e; for module in $(BENCHMARKS); do echo "== $$module"; $(BIN)/python -P -m $$module; done

notebooks: $(if $(NOTEBOOKS),$(VENV)/notebooks.stamp)
	@$(if $(NOTEBOOKS),printf '%s\n' $(NOTEBOOKS) | xargs -P 2 -n 1 $(BIN)/jupyter-execute --inplace,echo "There are no notebooks yet.")

# A warning is an error, but for the one that pdoc has for every NamedTuple whose fields are of a type by name.
reference: $(VENV)/reference.stamp
	@$(BIN)/python -P -W error -W "ignore:Error parsing type annotation ForwardRef" -m pdoc -o build/reference $(REFERENCE)
	@echo "The reference is in build/reference/index.html."

# A candidate has to run, and be new enough: pyenv leaves commands for versions that are not selected.
$(VENV)/created.stamp:
	@for python in $(PYTHON); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Making $(VENV) with $$("$$python" --version)"; \
	        "$$python" -m venv $(VENV) && touch $@; exit; \
	    fi; \
	done; \
	echo "dystruct needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python." >&2; exit 1

# Byte code is compiled at first import, for the modules that are imported: compiling all takes longer than installing.
install = $(BIN)/python -m pip install -q -q --disable-pip-version-check --no-compile -c constraints.txt

$(VENV)/torch.stamp: constraints.txt | $(VENV)/created.stamp
	@echo "Installing PyTorch"
	@$(install) torch
	@touch $@

$(VENV)/runtime.stamp: pyproject.toml $(VENV)/torch.stamp
	@echo "Installing dystruct and what it runs on"
	@$(install) -e .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/torch.stamp
	@echo "Installing dystruct and what its tests need"
	@$(install) -e '.[dev]'
	@touch $(VENV)/runtime.stamp $@

$(VENV)/notebooks.stamp: pyproject.toml $(VENV)/torch.stamp
	@echo "Installing dystruct and what its notebooks need"
	@$(install) -e '.[notebooks]'
	@touch $(VENV)/runtime.stamp $@

$(VENV)/reference.stamp: pyproject.toml $(VENV)/torch.stamp
	@echo "Installing dystruct and what its reference needs"
	@$(install) -e '.[reference]'
	@touch $(VENV)/runtime.stamp $@
