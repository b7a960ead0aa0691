# Each target works from a fresh clone: the environment is made when it is missing.

PYTHON ?= python3
ENGINE ?= docker
IMAGE  ?= agentops-memory

BIN   := .venv/bin
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help run test test-postgresql fault-test nightly fuzz ui-test screenshots lint format bench bench-full bench-postgresql bench-recall calls structure recording soak audit image image-test chart-test monitoring-test clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 18

run: $(READY) ## the service on 127.0.0.1:7437
	$(BIN)/agentops-memory

recording: $(READY) ## the picture of a terminal in the README, anew
	$(BIN)/python -m tests.docs.recording

test: $(READY) ## the tests, on all cores
	$(BIN)/pytest

test-postgresql: $(READY) ## the tests on PostgreSQL: PGURL, or Debian's postgresql
	$(BIN)/pytest --engine=postgresql

fault-test: $(READY) ## the slow tests and the heavy ones: faults, load and processes, and what was lost
	$(BIN)/pytest -m "slow or heavy"

nightly: $(READY) ## every test, with all examples of each property; both engines where there are two
	$(BIN)/pytest -m "" --hypothesis-profile=nightly
	$(BIN)/pytest -m "not heavy" --engine=postgresql

fuzz: $(READY) ## every route, from several workers at once: ten minutes; MINUTES=2 SEED=7
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

ui-test: $(READY) ## the console in a browser: Debian's chromium, or CHROMIUM; axe-core from npm
	$(BIN)/pip install --quiet --editable '.[test,ui]'
	AXE=$$(.ci/axe "$$(mktemp -d)") && export AXE && $(BIN)/pytest -m "slow or not slow" -n $(or $(WORKERS),2) tests/console

screenshots: $(READY) ## the pictures of the console in the README, anew
	$(BIN)/pip install --quiet --editable '.[test,ui]'
	$(BIN)/python -m tests.console.screenshots

lint: $(READY) ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY) ## the style, mended
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## the benchmarks at reduced sizes: about five minutes
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.texts
	$(BIN)/python -m benchmarks.redaction
	$(BIN)/python -m benchmarks.idle
	$(BIN)/python -m benchmarks.agents
	$(BIN)/python -m benchmarks.turns
	$(BIN)/python -m benchmarks.openintent
	$(BIN)/python -m benchmarks.openwop --entries 10000

bench-full: $(READY) ## the benchmarks in full: half an hour, 4 GB of disk; KEEP=folder keeps the files
	$(BIN)/python -m benchmarks --full $(if $(KEEP),--keep $(KEEP))

bench-postgresql: $(READY) ## PostgreSQL beside SQLite: PGURL, or Debian's postgresql; MEMORIES=100000
	$(BIN)/python -m benchmarks.postgresql $(if $(MEMORIES),--full --memories $(MEMORIES))

bench-recall: $(READY) ## recall in judged questions; DATA="folder ..." for other data
	$(BIN)/python -m benchmarks.recall --budgets $(DATA)
	$(BIN)/python -m benchmarks.recall --alone --company 400 $(DATA)
	$(BIN)/python -m benchmarks.recall --typos 1 $(DATA)

calls: $(READY) ## what each request calls: functions, files and changes of file; FILES=1 lists them
	$(BIN)/python -m benchmarks.calls $(if $(FILES),--files)

structure: $(READY) ## the budget of the sources, long files, import cycles
	$(BIN)/python -m benchmarks.structure

soak: $(READY) ## a million mixed requests: memory, log and errors over an hour
	$(BIN)/python -m benchmarks.soak --requests 1000000

# Strict, as otherwise a package that could not be looked up counts as a good one.
audit: $(READY) ## what the service installs, against the vulnerabilities that PyPI knows of
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --progress-spinner off --strict .
	$(BIN)/pip-audit --progress-spinner off --strict service/client

image: ## the container image, tagged with the version
	$(ENGINE) build -t $(IMAGE):$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' service/agentops_memory/__init__.py) .

image-test: ## build and run the image and the chart's pod as a cluster does; root on Debian, with npm
	.ci/image-test

chart-test: $(READY) ## the Helm chart, by Helm 3 and 4, which npm has; CHART_TOOLS=folder keeps them
	.ci/chart-test

monitoring-test: $(READY) ## rules, dashboard, unit and compose file; root on Debian
	.ci/monitoring-test

clean: ## remove what the other targets made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find service tests benchmarks -name __pycache__ -exec rm -rf {} +

$(READY): pyproject.toml service/client/pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[test,lint,checks]'
	touch $@
