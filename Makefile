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

.PHONY: help setup rack-packages demo test test-fast test-all lint docs clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: ## make .venv with everything pinned
	@scripts/setup.sh

rack-packages: setup
	@$(AS_ROOT) scripts/rack-packages.sh

demo: rack-packages ## the virtual rack, from bare systemd nodes to Slurm jobs
	@$(AS_ROOT) $(RUN) coldiron.demo

lint: setup ## style and types
	@$(VENV)/bin/python tests/suite.py lint

test-fast: setup ## what needs no node
	@$(VENV)/bin/python tests/suite.py fast

test: rack-packages ## lint, unit, a fresh site, every role's tests and sabotage
	@$(AS_ROOT) $(VENV)/bin/python tests/suite.py full

test-all: rack-packages ## all of it, the slow ones too
	@$(AS_ROOT) $(VENV)/bin/python tests/suite.py all

docs: setup ## the options tables of the roles' READMEs, from their specs
	@$(RUN) coldiron.docs_gen

clean: ## take every trace away: rack, caches, .venv
	@$(AS_ROOT) scripts/clean.sh
