"""Names of images are taken apart and completed."""

import pytest

from lictor.core.errors import EvaluationError
from lictor.core.lang.image_reference import list_aliases, list_named_registries, parse_image

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "registry", "path", "tag", "digest"),
    [
        ("busybox", "docker.io", "busybox", "latest", ""),
        ("busybox:1.36", "docker.io", "busybox", "1.36", ""),
        ("team/app", "docker.io", "team/app", "latest", ""),
        ("quay.io/team/app:v1", "quay.io", "team/app", "v1", ""),
        ("localhost/app", "localhost", "app", "latest", ""),
        ("host:5000/app", "host:5000", "app", "latest", ""),
        ("[::1]:5000/app", "[::1]:5000", "app", "latest", ""),
        ("HOST/app", "HOST", "app", "latest", ""),
        (f"app@{DIGEST}", "docker.io", "app", "", DIGEST),
        (f"a.b/app:1@{DIGEST}", "a.b", "app", "1", DIGEST),
        ("a_b/c__d/e--f", "docker.io", "a_b/c__d/e--f", "latest", ""),
    ],
)
def test_parts(text, registry, path, tag, digest):
    image = parse_image(text)
    assert (image.registry, image.path, image.tag, image.digest) == (registry, path, tag, digest)
    assert image.name == path.split("/")[-1]


def test_references():
    image = parse_image(f"a.b/c/d:1@{DIGEST}")
    assert image.reference == f"a.b/c/d@{DIGEST}"
    assert image.reference_with_tag == "a.b/c/d:1"
    assert parse_image("d").reference == "docker.io/d:latest"
    assert parse_image("d", "my.registry").reference == "my.registry/d:latest"
    assert parse_image("d", add_default=False).reference == "d:latest"


@pytest.mark.parametrize(
    "text",
    ["", " ", "a b", "a:", "a@", "UPPER", "a/UPPER", "a//b", "a/", "/a", "a___b", "-a", "a:-1", "a@sha256:12",
     "a@md5:" + "0" * 32, "a@sha256:" + "A" * 64, "x" * 300, "x" * 5000, "a\n", "ä"],
)  # fmt: skip
def test_what_is_no_image(text):
    with pytest.raises(EvaluationError, match="bad image"):
        parse_image(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("GHCR.io:443/a/b:1", ["ghcr.io/a/b:1"]),
        (f"a.b:0443/c:1@{DIGEST}", [f"a.b/c:1@{DIGEST}"]),
        ("[::1]:443/c", ["[::1]/c"]),
        ("a.b:5000/c", ["a.b:5000/c"]),
        ("x/y:1", ["docker.io/x/y:1", "index.docker.io/x/y:1", "registry-1.docker.io/x/y:1"]),
        ("no image", ["no image"]),
    ],
)
def test_other_names_of_an_image(text, names):
    assert list(list_aliases(text)) == names


def test_hub_images_have_a_folder_that_nobody_writes():
    assert list_aliases("nginx:1")[:2] == ("docker.io/nginx:1", "docker.io/library/nginx:1")
    assert set(list_aliases("INDEX.docker.io/library/nginx:1")) == set(list_aliases("nginx:1"))


@pytest.mark.parametrize(
    ("pattern", "named"),
    [("a.b:5000/*", "a.b:5000"), ("*", ""), ("*.b/x", ""), ("{{ x }}.b/x", ""), ("x/*", "")],
)
def test_registries_that_patterns_name(pattern, named):
    assert list_named_registries([pattern]) == ({named} if named else set())
