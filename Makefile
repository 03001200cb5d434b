# make resolves what was asked for; Python does the work.

# Values reach Python through the environment as they were typed: $(value) keeps make from expanding them.
override export MODEL := $(value MODEL)
override export HW := $(value HW)
override export CONTEXTS := $(value CONTEXTS)
override export BATCH := $(value BATCH)
override export DEPTH := $(value DEPTH)
override export CTX := $(value CTX)
override export RESIDENT := $(value RESIDENT)
override export RESERVE := $(value RESERVE)
override export TARGET_MS := $(value TARGET_MS)
override export GENERATE := $(value GENERATE)
override export TERMS := $(value TERMS)
override export MODELS := $(value MODELS)
override export HWS := $(value HWS)
override export JOBS := $(value JOBS)
override export SCHEDULER := $(value SCHEDULER)

# Under LC_ALL=C, Python cannot start in a folder whose name is not ASCII.
export LC_ALL := C.UTF-8

python := .venv/bin/python
nbval := --nbval --nbval-current-env --nbval-cell-timeout=60
references := $(addsuffix /report.ipynb,$(addprefix reports/,llama3-8b--a100 llama2-13b--a100-gen3 mistral-7b--rtx4090))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

report: .venv/installed ## build reports/<model>--<hw>/: MODEL=llama3-8b HW=a100 CONTEXTS=512,1024 BATCH=4 DEPTH=2
	@$(python) -m kvprefetch report

validation: .venv/installed ## build reports/validation/: predictions held against published measurements
	@$(python) -m kvprefetch validation

reports: .venv/installed ## build the report of every pair of params/fleet.yaml, or of MODELS="…" HWS="…": JOBS=2
	@$(python) -m kvprefetch reports

fleet: .venv/installed ## build reports/fleet/, which compares those pairs: TARGET_MS=50
	@$(python) -m kvprefetch fleet

notebook: .venv/installed ## open a working copy of the notebook in JupyterLab, MODEL, HW and the rest filled in
	@copy=$$($(python) -m kvprefetch notebook) && exec $(python) -m jupyterlab $$LAB_FLAGS "$$copy"

models: .venv/installed ## list the catalogue's models
	@$(python) -m kvprefetch models

cards: .venv/installed ## list the catalogue's cards
	@$(python) -m kvprefetch cards

test: .venv/installed ## run the tests, and nbval over the reference reports
	$(python) -m pytest -n auto --dist loadscope $(nbval) tests $(references)

regress: .venv/installed ## run nbval over every report in reports/
	$(python) -m pytest -n auto --dist loadscope $(nbval) reports

reference: .venv/installed ## rebuild the reference reports and show what changed, number by number
	@$(python) -m kvprefetch.reference

bench: .venv/installed ## measure speed, as ratios within one run
	@$(python) tests/bench.py

lint: .venv/installed ## check style and format, notebooks included
	$(python) -m ruff check .
	$(python) -m ruff format --check .

lock: ## pin requirements.txt anew from pyproject.toml
	@python3 -m venv .cache/lock && .cache/lock/bin/python -m pip install --quiet uv==0.13.9
	.cache/lock/bin/uv pip compile --quiet --upgrade --all-extras --universal --fork-strategy fewest --python-version 3.11 \
	  --custom-compile-command "make lock" pyproject.toml --output-file requirements.txt

clean: ## remove reports that are not tracked, caches and the environment; working copies and kept inputs stay
	rm -rf .venv .cache/failed .cache/locks .cache/lock .cache/matplotlib .pytest_cache .ruff_cache .hypothesis
	git clean -fdXq reports

.venv/installed: requirements.txt pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvprefetch needs Python 3.11 or later")'
	@echo "setting up .venv, about a minute" >&2
	@python3 -m venv .venv || { echo "python3 -m venv failed; where the module is missing, on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(python) -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	$(python) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.PHONY: help report validation reports fleet notebook models cards test regress reference bench lint lock clean
