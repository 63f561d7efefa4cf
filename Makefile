# make demo    the virtual rack from bare nodes to Slurm jobs
# make test    every check that a change must pass
# make clean   take every trace away
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV ?= .venv
export COLDIRON_VENV := $(VENV)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
RUN := $(VENV)/bin/python -m
# The rack needs root; everything under one sudo keeps the files of one owner.
AS_ROOT := scripts/as-root.sh

.PHONY: help setup rack-packages test-packages demo test test-fast test-all test-python lint docs docs-site dist clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 21

setup: ## make .venv with everything pinned
	@scripts/setup.sh

rack-packages: setup
	@$(AS_ROOT) scripts/rack-packages.sh

test-packages: setup
	@$(AS_ROOT) scripts/test-packages.sh inventories/metal

demo: rack-packages ## the virtual rack, from bare systemd nodes to Slurm jobs
	@$(AS_ROOT) $(RUN) coldiron.demo

lint: setup ## style and types
	@$(VENV)/bin/python tests/suite.py lint

test-fast: setup ## what needs no node
	@$(VENV)/bin/python tests/suite.py fast

test: test-packages ## lint, unit, packages, a fresh site, machines from power-off, every role's tests and sabotage
	@$(AS_ROOT) $(VENV)/bin/python tests/suite.py full

test-all: test-packages ## all of it, and the slow ones
	@$(AS_ROOT) $(VENV)/bin/python tests/suite.py all

# The same lock, another Python: make test-python PYTHON=3.12
test-python: setup ## unit and contract tests, and a site that stands, with the other Python
	@$(AS_ROOT) env COLDIRON_OTHER_PYTHON=$(PYTHON) $(VENV)/bin/python tests/suite.py matrix

docs: setup ## what the documentation has from the code: tables of options, the reference of cluster.yml
	@$(RUN) coldiron.docs_gen

docs-site: setup ## the documentation as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict -d site

dist: setup ## wheel, sdist and Galaxy tarball in dist/, with SHA256SUMS
	@$(VENV)/bin/python scripts/dist.py

clean: ## take every trace away: rack, caches, .venv
	@$(AS_ROOT) scripts/clean.sh
