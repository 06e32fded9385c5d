#!/bin/sh
# `make image-base`: a base image for the Dockerfile out of Debian's packages alone, where no registry of images can be reached.
#
#     scripts/make_base_image.sh [NAME]          # needs buildah, debootstrap or mmdebstrap, and root (or `buildah unshare`)
#
# SUITE and MIRROR choose Debian's release and server; by default those that debootstrap knows.
set -eu
name=${1:-localhost/lictor-python:debian}
suite=${SUITE:-bookworm}
packages=python3,python3-venv,ca-certificates,tzdata

command -v buildah > /dev/null || { echo "make_base_image.sh: buildah is not here" >&2; exit 1; }
container=$(buildah from scratch)
trap 'buildah rm "$container" > /dev/null' EXIT
root=$(buildah mount "$container")
if command -v mmdebstrap > /dev/null; then
    # shellcheck disable=SC2086  (an empty mirror is no word)
    mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$root" ${MIRROR:-}
elif command -v debootstrap > /dev/null; then
    # shellcheck disable=SC2086
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${MIRROR:-} > /dev/null
else
    echo "make_base_image.sh: install debootstrap or mmdebstrap" >&2
    exit 1
fi
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
buildah umount "$container" > /dev/null
buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env LANG=C.UTF-8 --cmd python3 "$container"
buildah commit --quiet "$container" "$name"
echo "$name"
