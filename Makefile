# Everything a person types in a clone. Needs Python 3.12 or newer and make; the rest is installed into .venv.

.DEFAULT_GOAL := help
SHELL := /bin/bash
# Images often forbid it. Here hundreds of processes start, and each would compile all of our sources again: a quarter of its start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.set-up
# Parallel test processes; each starts servers of its own, and most of their time they wait.
WORKERS ?= 4

# Torch has a venv of its own: it has wheels for fewer Pythons than we run on. The first of these for which there is one is taken; a
# build without CUDA is enough, and is a tenth of the size.
TORCH_VENV := .venv-torch
TORCH_STAMP := $(TORCH_VENV)/.set-up
TORCH := torch==2.13.0

# Modules of others that the pages import: fetched by npm, checked by hash, never committed.
WEB_PACKAGES := .web-packages
WEB_STAMP := web/vendor/.set-up

GENERATOR_VENV := .venv-openapi
GENERATOR_STAMP := $(GENERATOR_VENV)/.set-up
GENERATOR_LOCK := tests/data/openapi/client-generator.lock

SITE_VENV := .venv-site
SITE_STAMP := $(SITE_VENV)/.set-up
SITE_LOCK := docs/site.lock

COMPILER_VENV := .venv-compiler
COMPILER_STAMP := $(COMPILER_VENV)/.set-up
COMPILER_LOCK := deploy/compiler.lock
# The compiled wheel, unpacked: before everything else on PYTHONPATH, and nowhere near the sources.
COMPILED := .compiled
COMPILED_STAMP := $(COMPILED)/.built
# Parts whose tests run on the compiled cores, too: those of the cores alone; tests/compiled plays worlds on both.
COMPILED_TESTS := tests/cores tests/queue tests/placer

.PHONY: help setup demo up down test test-pure test-quick test-gpu torch test-torch web web-if-npm client-generator compiled test-compiled check check-web partitions hostile ha chaos bench wheel wheel-compiled wheelhouse deb fmt docs pictures site clean

help: ## what can be typed here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv (done by the others by themselves)

# FAIRLEAD_PYTHON, else the fastest Python on PATH that is new enough: builds differ by a fifth (cli/fairlead/interpreter.py).
$(STAMP): requirements.lock pyproject.toml
	@set -euo pipefail; \
	found=; \
	if [ -n "$${FAIRLEAD_PYTHON:-}" ] && "$$FAIRLEAD_PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then \
	  found=$$FAIRLEAD_PYTHON; \
	else \
	  for any in python3 python python3.13 python3.12 python3.14; do \
	    if found=$$("$$any" cli/fairlead/interpreter.py); then break; fi; \
	  done; \
	fi; \
	if [ -z "$$found" ]; then \
	  echo "fairlead needs Python 3.12 or newer with venv, and found none on PATH; install one (for example: uv python install 3.13, or your system's python3.13 and python3.13-venv) or name it in FAIRLEAD_PYTHON" >&2; exit 1; \
	fi; \
	if ! $(PYTHON) -c 'import sys, pip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then \
	  echo "setup     a virtual environment in $(VENV) with $$("$$found" --version)"; \
	  rm -rf $(VENV); "$$found" -m venv $(VENV); \
	fi; \
	echo "setup     packages of requirements.lock, checked by hash"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	touch $(STAMP)

demo: $(STAMP) $(if $(findstring --stay,$(ARGS)),web-if-npm) ## a small team's morning on a simulated cluster; ends by itself (ARGS=--stay: leaves its pages open until Ctrl-C)
	@$(VENV)/bin/fairlead demo $(ARGS)

up: $(STAMP) web-if-npm ## the same cluster, up until Ctrl-C
	@$(VENV)/bin/fairlead up

down: $(STAMP) ## end a cluster started with `fairlead up --detach`
	@$(VENV)/bin/fairlead down

test: $(STAMP) ## every test that this machine can run; names what it skipped and why
	$(PYTHON) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-quick: $(STAMP) ## the same without the slow ones
	$(PYTHON) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --quick $(ARGS)

test-pure: $(STAMP) ## the rules alone: no server, process, socket or wait; under a minute
	$(PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal --pure $(ARGS)

test-gpu: $(STAMP) ## the tests that need an NVIDIA GPU
	@$(PYTHON) -m pytest -q -rA -m gpu tests/agent $(ARGS)

torch: $(STAMP) ## install torch into .venv-torch: its tests are then among those of `make test`; prints why if it cannot be set up
	@set -euo pipefail; \
	if [ ! -e $(TORCH_STAMP) ]; then \
	  found=; pyenv=$${PYENV_ROOT:-$$HOME/.pyenv}/versions; \
	  for candidate in $${FAIRLEAD_TORCH_PYTHON:-} python3.11 $$(ls -d "$$pyenv"/3.11.*/bin/python 2>/dev/null) python3.12 python3.13; do \
	    "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1 || continue; \
	    echo "torch     $(TORCH) for $$("$$candidate" --version)"; \
	    rm -rf $(TORCH_VENV); "$$candidate" -m venv $(TORCH_VENV); \
	    if $(TORCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH) 2>$(TORCH_VENV)/why; then found=$$candidate; break; fi; \
	    tail -n 1 $(TORCH_VENV)/why; \
	  done; \
	  if [ -z "$$found" ]; then rm -rf $(TORCH_VENV); echo "torch: no Python here for which $(TORCH) can be installed; name one in FAIRLEAD_TORCH_PYTHON" >&2; exit 1; fi; \
	  touch $(TORCH_STAMP); \
	fi

web: $(WEB_STAMP) ## fetch the modules of the pages with npm, into web/vendor; without them the pages show counts only

# Before what installs or starts the pages: without npm they show counts only.
web-if-npm:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web; else echo "web       npm is not on PATH: the pages will show counts only"; fi

$(WEB_STAMP): web/package.json web/package-lock.json
	@command -v npm >/dev/null || { echo "web       npm is not on PATH: install it (apt-get install npm), then make web" >&2; exit 1; }
	@rm -rf web/vendor && mkdir -p $(WEB_PACKAGES) web/vendor && cp web/package.json web/package-lock.json $(WEB_PACKAGES)/
	@npm ci --prefix $(WEB_PACKAGES) --ignore-scripts --no-audit --no-fund --silent
	@cp $(WEB_PACKAGES)/node_modules/preact/dist/preact.module.js web/vendor/preact.js
	@cp $(WEB_PACKAGES)/node_modules/preact/hooks/dist/hooks.module.js web/vendor/hooks.js
	@cp $(WEB_PACKAGES)/node_modules/htm/dist/htm.module.js web/vendor/htm.js
	@cp $(WEB_PACKAGES)/node_modules/uplot/dist/uPlot.esm.js web/vendor/uplot.js
	@cp $(WEB_PACKAGES)/node_modules/uplot/dist/uPlot.min.css web/vendor/uplot.css
	@touch $(WEB_STAMP)

test-torch: torch ## torch.distributed over two played hosts
	$(PYTHON) -m pytest -q -m torch tests/system $(ARGS)

client-generator: $(GENERATOR_STAMP) ## a generator of clients from OpenAPI, in .venv-openapi: its tests are then among those of `make test`

# Has a venv of its own, since it would hold our packages at older versions.
$(GENERATOR_STAMP): $(GENERATOR_LOCK) | $(STAMP)
	$(PYTHON) -m venv --clear $(GENERATOR_VENV)
	$(GENERATOR_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(GENERATOR_LOCK)
	touch $(GENERATOR_STAMP)

compiled: $(COMPILED_STAMP) ## the cores as extension modules, in .compiled: any command uses them with PYTHONPATH=$$PWD/.compiled

$(COMPILED_STAMP): pyproject.toml deploy/compiled_cores.py $(shell find schemas bus rights services replay cli -name '*.py') | $(COMPILER_STAMP)
	@rm -rf $(COMPILED) && mkdir -p $(COMPILED)
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(COMPILER_VENV)/bin/python -m hatchling build --target wheel --directory $(COMPILED)
	$(COMPILER_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) $(COMPILED)/*.whl
	@touch $(COMPILED_STAMP)

# Has a venv of its own, like the client generator: nothing that we run needs a compiler.
$(COMPILER_STAMP): $(COMPILER_LOCK) | $(STAMP)
	$(PYTHON) -m venv --clear $(COMPILER_VENV)
	$(COMPILER_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(COMPILER_LOCK)
	touch $(COMPILER_STAMP)

test-compiled: $(COMPILED_STAMP) ## the rules on the compiled cores, and the logs of the same seeds on both
	PYTHONPATH=$(CURDIR)/$(COMPILED) $(PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal --pure $(COMPILED_TESTS) $(ARGS)
	PYTHONPATH=$(CURDIR)/$(COMPILED) $(PYTHON) -m pytest -q -n $(WORKERS) tests/compiled $(ARGS)

check: $(STAMP) ## lint, format, types, import rules, generated documents
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/lint-imports
	$(PYTHON) docs/synchronous.py --check
	$(PYTHON) docs/generate.py --check
	$(VENV)/bin/pyright
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory check-web; else echo "web       not checked: npm is not on PATH"; fi

check-web: $(WEB_STAMP) ## types of the pages' modules
	node $(WEB_PACKAGES)/node_modules/typescript/bin/tsc -p web

partitions: $(STAMP) ## cut nodes off, ROUNDS times, and show that no job ran twice; needs root
	$(PYTHON) -m tests.system.partitions --rounds $(or $(ROUNDS),20) $(ARGS)

hostile: $(STAMP) ## attack real stacks, ROUNDS times each way, and show what held; parts of it need root
	$(PYTHON) -m tests.hostile --rounds $(or $(ROUNDS),1) $(ARGS)

ha: $(STAMP) ## three servers and two of each service, while each of them dies: a timeline of what that costs; ROUNDS times
	$(PYTHON) -m tests.hostile.ha --rounds $(or $(ROUNDS),1) $(ARGS)

chaos: $(STAMP) ## ROUNDS faults in random order on three servers and two of each service; cutting cables needs root
	$(PYTHON) -m tests.hostile.chaos --rounds $(or $(ROUNDS),18) $(ARGS)

bench: $(STAMP) ## the table of docs/reference/performance.md, measured here
	$(PYTHON) -m bench

wheel: $(STAMP) web-if-npm ## build dist/fairlead_cluster-VERSION-py3-none-any.whl, which installs on other machines by its path
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

wheel-compiled: $(COMPILED_STAMP) ## build dist/fairlead_cluster-VERSION-PYTHON-PLATFORM.whl, in which the cores are extension modules
	@mkdir -p dist && cp -v $(COMPILED)/*.whl dist/

wheelhouse: $(STAMP) web-if-npm ## build dist/wheelhouse: a folder from which a machine without a network installs everything
	@sh deploy/offline/wheelhouse.sh $(PYTHON) dist/wheelhouse

deb: wheelhouse ## build dist/fairlead_VERSION_ARCH.deb out of it: installs by dpkg -i, without a network
	@sh deploy/debian/build.sh $(PYTHON) dist/wheelhouse dist

fmt: $(STAMP) ## format, and mend what lint can mend
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

docs: $(STAMP) ## write the generated documents again
	$(PYTHON) docs/synchronous.py
	$(PYTHON) docs/generate.py

pictures: $(STAMP) ## take the pictures of the documentation from a real stack, in docs/pictures/; needs npm and chromium
	$(PYTHON) docs/pictures.py

# Without --quiet: that drops warnings before --strict counts them.
site: $(SITE_STAMP) ## build the documentation as a site, in site/; a broken link is a failure
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict --clean

# Has a venv of its own, like the client generator: nothing that we run needs these packages.
$(SITE_STAMP): $(SITE_LOCK) | $(STAMP)
	$(PYTHON) -m venv --clear $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(SITE_LOCK)
	touch $(SITE_STAMP)

clean: ## remove everything that was installed or produced here
	rm -rf $(VENV) $(TORCH_VENV) $(GENERATOR_VENV) $(SITE_VENV) $(COMPILER_VENV) .venv-canaille .venv-playwright $(WEB_PACKAGES) web/vendor tests/kit/oidc_provider/node_modules $(COMPILED) .compiled-cache site .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
