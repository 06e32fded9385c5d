# An image with lictor, the interpreter, the libraries that both need, and nothing else: no shell, no package manager.
# `make image` builds it; docs/get-started/cluster.md tells how, and what is in it. Packages come from the index that pip is set to,
# and only as requirements-run.lock names them.

# Any image with Debian, python3 and venv will do; `make image-base` makes one out of Debian's packages alone.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /source
RUN python3 -I -m venv /opt/lictor
COPY requirements-run.lock ./
# pip.conf, where the builder hands one over, names an index of your own; it is in no layer.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/lictor/bin/python -I -m pip install --quiet --require-hashes --only-binary :all: -r requirements-run.lock
COPY pyproject.toml README.md LICENSE ./
COPY scripts/assemble_image.py scripts/
COPY src src
ARG COMMIT=---
ARG BUILT_AT=---
RUN python3 scripts/assemble_image.py stamp src/lictor/core/release.py \
    && /opt/lictor/bin/python -I -m pip install --quiet --no-deps --no-build-isolation . \
    && /opt/lictor/bin/python -I -m pip uninstall --quiet --yes setuptools pip
RUN python3 scripts/assemble_image.py tree /opt/lictor /image

# For pipelines whose runner starts a shell in the image (GitLab, Tekton): `make image TARGET=with-shell`.
FROM ${PYTHON_IMAGE} AS with-shell
COPY --from=build /image/opt/lictor /opt/lictor
ENV PATH=/opt/lictor/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
USER 65534:65534
WORKDIR /tmp

FROM scratch
COPY --from=build /image /
ENV PATH=/opt/lictor/bin LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
# By number: Kubernetes cannot see whether a name is root's.
USER 65534:65534
WORKDIR /
EXPOSE 9443 8000
ENTRYPOINT ["lictor"]
