# The same words for people and CI. Everything lives in .venv, made from requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
SHARED ?= ../shared
UV_VERSION := 0.13.7

.PHONY: setup demo test test-cluster test-images check fix conformance conformance-cluster bench facts fuzz siege dependencies lock clean

# Bytecode is written here because start-up counts, and some environments keep Python from writing it.
setup: $(STAMP)
	@$(BIN)/python -m compileall -q src

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup
	@$(BIN)/python scripts/demo.py

test: setup
	@$(BIN)/python -m pytest -q -n auto

# On the cluster inside lictor and on a real control plane, which is built through Go modules the first time; that half is skipped in one
# line where there is no Go. LICTOR_CLUSTER=embedded or real chooses. SLOW=1 adds tests that take minutes. These tests kill and wait on a clock:
# what fails on a busy machine gets one more try, in the open.
CLUSTER_TESTS = LICTOR_CLUSTER_TESTS=1 $(BIN)/python -m pytest -q tests/cluster $(if $(SLOW),,-m "not slow")
test-cluster: setup
	@$(CLUSTER_TESTS) -n 2 --dist loadfile || { \
	    echo "test-cluster: one more try for those that failed"; \
	    $(CLUSTER_TESTS) --last-failed --last-failed-no-failures none; }

# Images that real cosign and notation sign; the tools are built through Go modules the first time (6 minutes of CPU), and skipped in one line
# where there is no Go.
test-images: setup
	@LICTOR_IMAGE_TESTS=1 $(BIN)/python -m pytest -q tests/images -n 2 --dist loadfile

check: setup
	@$(BIN)/ruff check src tests scripts
	@$(BIN)/ruff format --check src tests scripts
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/find_dead_code.py

fix: setup
	@$(BIN)/ruff check --fix src tests scripts
	@$(BIN)/ruff format src tests scripts

conformance: setup
	@$(BIN)/python scripts/conformance.py --shared $(SHARED)

# Kyverno's own cluster tests with lictor in its place. FOLDERS=a,b chooses, all by default; CLUSTER=embedded runs them without a control plane.
# IMAGES=1 serves the images that tests name, signed by keys of ours, from a registry on loopback.
conformance-cluster: setup
	@$(BIN)/python scripts/conformance_cluster.py --shared $(SHARED) --controllers background,reports,cleanup \
	    $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(FOLDERS),--folders $(FOLDERS)) $(if $(IMAGES),--images)

bench: setup
	@$(BIN)/python tests/bench/bench.py --shared $(SHARED)

# What Kubernetes says of its kinds, from Go's modules of one release: see scripts/make_facts.py.
facts: setup
	@$(BIN)/python scripts/make_facts.py

fuzz: setup
	@$(BIN)/python tests/fuzz/run_fuzz.py --examples $(or $(EXAMPLES),200000)

# Policies as an enemy would write them, against a running lictor: TIME seconds, CLUSTER=embedded or real, SEED=number.
siege: setup
	@$(BIN)/python tests/siege/run.py --seconds $(or $(TIME),300) $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(SEED),--seed $(SEED))

# Exit code 3: the database of known holes could not be asked.
dependencies: setup
	@$(BIN)/python scripts/check_dependencies.py

# Writes requirements.lock anew from pyproject.toml; no index is named in it.
lock:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@printf 'pip>=25.3\nsetuptools>=77\nwheel\n' > build-requirements.tmp
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate \
	    --python-version 3.11 --group dev pyproject.toml build-requirements.tmp -o requirements.lock
	@rm -f build-requirements.tmp

clean:
	@rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
