# The same words for people and CI. Everything lives in .venv, made from requirements.lock. PYTHON=program chooses the interpreter, and
# VENV=.venv-3.13 keeps one beside the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
SHARED ?= ../shared
UV_VERSION := 0.13.7
# Of httpx2, for Python in a browser: the locks leave it out.
NOT_HERE := --no-emit-package httpx2-jsfetch

.PHONY: setup demo test test-unit test-cluster test-kubewarden test-page test-ray test-images test-packages docs docs-serve check fix conformance conformance-cluster bench facts chart fuzz siege dependencies lock image image-base sbom packages clean

# Bytecode is written here because start-up counts, and some environments keep Python from writing it.
setup: $(STAMP)
	@$(BIN)/python -m compileall -q src

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "$(VENV): $$($(BIN)/python -V)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup
	@$(BIN)/python scripts/demo.py

# One try, on every machine: tests wait for what can be seen, not for a while. $(call pytest,PATHS AND OPTIONS)
pytest = echo "$(VENV): $$($(BIN)/python -V)" && $(BIN)/python -m pytest -q $(1)

# More processes than cores: many tests wait for others.
test: setup
	@$(call pytest,-n $(or $(WORKERS),4))

# What differs between interpreters would differ here.
test-unit: setup
	@$(call pytest,tests/unit -n $(or $(WORKERS),4))

# On the cluster inside lictor and on a real control plane, which is built through Go modules the first time; that half is skipped in one
# line where there is no Go. LICTOR_CLUSTER=embedded or real chooses. LICTOR_KUBERNETES=v1.35.4 takes another release than the one that lictor
# follows. SLOW=1 adds tests that take minutes.
test-cluster: export LICTOR_CLUSTER_TESTS = 1
test-cluster: setup
	@$(call pytest,tests/cluster $(if $(SLOW),,-m "not slow") -n 3 --dist loadfile --no-loadscope-reorder)

# Policy servers and command lines as Kubewarden has them, and policies in Rego, Go and Rust. OPA and the guests are built the first time.
test-kubewarden conformance bench: export LICTOR_KUBEWARDEN_TESTS = 1
test-kubewarden: setup
	@$(call pytest,$(addprefix tests/conformance/test_,policy_server.py kwctl.py rego_wasm.py) tests/wasm $(addprefix tests/unit/addons/kubewarden/runtime/test_,built_guests.py guest_host_calls.py) -n 2 --dist loadfile)

# The web UI and the documentation site in a real browser: Chromium of the system, and axe-core from npm; skipped in one line where they are missing.
test-page: export LICTOR_PAGE_TESTS = 1
test-page: setup docs
	@$(call pytest,tests/page -n 2 --dist loadfile)

# On a real Ray, with lictor[ray], in a .venv-ray of its own: the extra has its own lock.
RAY_STAMP := .venv-ray/.stamp
test-ray: setup $(RAY_STAMP)
	@LICTOR_RAY_TESTS=1 .venv-ray/bin/python -m pytest -q tests/fleet

$(RAY_STAMP): requirements.lock requirements-ray.lock
	@test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray
	@.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock -r requirements-ray.lock
	@.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(RAY_STAMP)

# Images that real cosign and notation sign; the tools are built through Go modules the first time (6 minutes of CPU), and skipped in one line
# where there is no Go.
test-images: export LICTOR_IMAGE_TESTS = 1
test-images: setup
	@$(call pytest,tests/images -n 2 --dist loadfile)

# The documentation site, in build/site: every link and anchor is checked. It needs no network once .venv-docs is there.
DOCS_STAMP := .venv-docs/.stamp
docs: $(DOCS_STAMP)
	@.venv-docs/bin/zensical build --strict --clean
	@.venv-docs/bin/python scripts/check_site.py build/site

docs-serve: $(DOCS_STAMP)
	@.venv-docs/bin/zensical serve

$(DOCS_STAMP): requirements-docs.lock
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $(DOCS_STAMP)

check: setup
	@$(BIN)/ruff check src tests scripts tools
	@$(BIN)/ruff format --check src tests scripts tools
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/find_dead_code.py

fix: setup
	@$(BIN)/ruff check --fix src tests scripts tools
	@$(BIN)/ruff format src tests scripts tools

# Recorded answers of others, where they lie beside the project; 1 where one differs that docs/reference/differences.md does not list. ONLY=yaml,cel chooses.
conformance: setup
	@$(BIN)/python scripts/conformance.py $(if $(ONLY),--only $(ONLY))

# Kyverno's own cluster tests with lictor in its place. FOLDERS=a,b chooses, all by default; CLUSTER=embedded runs them without a control plane.
# IMAGES=1 serves the images that tests name, signed by keys of ours, from a registry on loopback.
conformance-cluster: setup
	@$(BIN)/python scripts/conformance_cluster.py --shared $(SHARED) --controllers background,reports,cleanup \
	    $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(FOLDERS),--folders $(FOLDERS)) $(if $(IMAGES),--images)

# Every bar, and whether it holds. PEER=program runs Kyverno's command line on the same work. ALL=1 adds what takes minutes: policies that change
# under load, a file of 1 GB, scans, Ray. ONLY=start,apply,policies,large,admission,changes,scan,fleet chooses. STRICT=1 fails where a bar is missed.
bench: setup
	@$(BIN)/python tools/bench/bench.py --shared $(SHARED) $(if $(PEER),--peer $(PEER)) $(if $(ALL),--all) $(if $(ONLY),--only $(ONLY)) \
	    $(if $(STRICT),--strict)

# What Kubernetes says of its kinds, from Go's modules of one release: see scripts/make_facts.py.
facts: setup
	@$(BIN)/python scripts/make_facts.py

# charts/lictor and its page, from the manifests of `lictor install`.
chart: setup
	@$(BIN)/python scripts/make_chart.py
	@$(BIN)/python scripts/make_chart_page.py

fuzz: setup
	@$(BIN)/python tools/fuzz/run_fuzz.py --examples $(or $(EXAMPLES),200000)

# Policies as an enemy would write them, against a running lictor: TIME seconds, CLUSTER=embedded or real, SEED=number.
siege: setup
	@$(BIN)/python tools/siege/run.py --seconds $(or $(TIME),300) $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(SEED),--seed $(SEED))

# Exit code 3: the database of known holes could not be asked.
dependencies: setup
	@$(BIN)/python scripts/check_dependencies.py

# Writes requirements.lock anew from pyproject.toml; no index is named in it.
lock:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@printf 'pip>=25.3\nsetuptools>=77\nwheel\n' > build-requirements.tmp
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate $(NOT_HERE) \
	    --python-version 3.11 --group dev pyproject.toml build-requirements.tmp -o requirements.lock
# What running takes, with setuptools to install from the source: the image, the GitHub Action and the kubectl plug-in use it.
	@printf 'setuptools>=77\n' > build-requirements.tmp
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate $(NOT_HERE) \
	    --python-version 3.11 --extra tracing --constraint requirements.lock pyproject.toml build-requirements.tmp -o requirements-run.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate $(NOT_HERE) \
	    --python-version 3.11 --extra ray --constraint requirements.lock pyproject.toml -o requirements-ray.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate $(NOT_HERE) \
	    --python-version 3.11 --group docs -o requirements-docs.lock
	@rm -f build-requirements.tmp

# IMAGE=another name. BUILDER=buildah|podman|docker. BASE=image with Python (make image-base makes one of Debian's packages). TARGET=with-shell
# for runners that start a shell. IMAGE_FLAGS=flags for the builder, as --isolation=chroot. See docs/get-started/cluster.md.
image: setup
	@$(BIN)/python scripts/make_image.py $(if $(IMAGE),--tag $(IMAGE)) $(if $(BUILDER),--builder $(BUILDER)) $(if $(BASE),--base $(BASE)) \
	    $(if $(TARGET),--target $(TARGET)) -- $(IMAGE_FLAGS)

image-base:
	@scripts/make_base_image.sh $(BASE)

# What lictor consists of, as CycloneDX: build/lictor.cdx.json.
sbom: setup
	@$(BIN)/python scripts/make_sbom.py

# Wheel, sdist and the archive for krew, into dist/.
packages: setup
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) $(BIN)/python -m build --no-isolation
	@$(BIN)/python scripts/make_krew.py

# Packages as users get them, by the real tools: wheel, pre-commit, kubectl, the Action's steps, the image. Fetches the packages of the lock once.
test-packages: setup
	@LICTOR_PACKAGE_TESTS=1 $(BIN)/python -m pytest -q tests/packages

clean:
	@rm -rf .venv .venv-* build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
