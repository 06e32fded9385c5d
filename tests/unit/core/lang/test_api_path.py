"""Names in paths of the API."""

import pytest

from lictor.core.errors import ApiError
from lictor.core.lang.url import escape_segment
from lictor.kubernetes.resource import CONFIG_MAP, Resource


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("web-1.example", "web-1.example"),
        ("system:controller:x", "system:controller:x"),
        ("a..b", "a..b"),
        ("who?x=y", "who%3Fx%3Dy"),
        ("a#b", "a%23b"),
        ("a b", "a%20b"),
        ("a@b", "a@b"),
        (".hidden", ".hidden"),
    ],
)
def test_names(text, escaped):
    assert escape_segment(text) == escaped


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a/b", "../blue", "%2e%2e", "a%2fb", "a\n", "a\tb", "\x00"]
)
def test_what_is_no_name(text):
    with pytest.raises(ApiError, match="is not a valid name"):
        escape_segment(text)


@pytest.mark.parametrize(
    ("namespace", "name", "subresource"),
    [
        ("red", "../../blue/configmaps/vault", ""),
        ("red/../blue", "vault", ""),
        ("red", "vault/status", ""),
        ("red", "..", ""),
        ("red", "vault", "../../x"),
        ("%72ed", "vault", ""),
    ],
)
def test_no_object_is_found_by_a_path(namespace, name, subresource):
    with pytest.raises(ApiError, match="is not a valid name"):
        CONFIG_MAP.path(namespace, name, subresource)


@pytest.mark.parametrize(
    ("group", "version", "plural"),
    [
        ("apps/v1/namespaces/blue", "v1", "x"),
        ("", "v1/namespaces/blue/secrets", "x"),
        ("", "v1", "../secrets"),
    ],
)
def test_no_kind_is_a_path(group, version, plural):
    with pytest.raises(ApiError, match="is not a valid name"):
        Resource(group, version, plural, "X").path("red", "a")
