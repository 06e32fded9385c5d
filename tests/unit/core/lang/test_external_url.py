"""Which URLs lead outside."""

import pytest

from lictor.core.lang.url import is_external_url


@pytest.mark.parametrize(
    ("url", "external"),
    [
        ("http://1.1.1.1", True),
        ("http://user:secret@1.1.1.1:80/x", True),
        ("http://a@b@10.0.0.1", False),
        ("http://[fc00::1]:80", False),
        ("http://localhost:80", False),
        ("http://1.1.1.1:", True),
    ],
)
def test_where_it_leads(url, external):
    assert is_external_url(url, lambda _: ["1.1.1.1"]) is external


@pytest.mark.parametrize(
    "url",
    [
        "http://1.1.1.1:x",
        "http://a:b@1.1.1.1:x",
        "http://[::1",
        "http://a\nb",
        "http://" + "@" * 50_000 + ":x",
    ],
)
def test_what_is_no_url(url):
    with pytest.raises(ValueError, match=r"."):
        is_external_url(url, lambda _: ["1.1.1.1"])
