"""Semantic versions such as `1.2.3-beta.1`, read strictly and ordered as semver.org says."""

import re

import msgspec

_NUMBER = r"(0|[1-9][0-9]{0,19})"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_FORM = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?")
_MOST = (1 << 64) - 1

# A number comes before any word: (0, number, "") < (1, 0, word).
Identifier = tuple[int, int, str]


class Version(msgspec.Struct, frozen=True, order=True):
    """A version; what follows `+` does not count."""

    numbers: tuple[int, int, int]
    is_release: bool = True
    labels: tuple[Identifier, ...] = ()


def parse_version(text: str) -> Version | None:
    """Read a version of three numbers, without a leading `v`; None where it is none."""
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    major, minor, patch, labels = form.groups()
    numbers = (int(major), int(minor), int(patch))
    identifiers = tuple(_read_identifier(label) for label in labels.split(".")) if labels else ()
    if max(numbers) > _MOST or None in identifiers:
        return None
    known = tuple(identifier for identifier in identifiers if identifier is not None)
    return Version(numbers, is_release=not known, labels=known)


def _read_identifier(label: str) -> Identifier | None:
    if not label.isdigit():
        return (1, 0, label)
    if len(label) > 20 or (label[0] == "0" and label != "0") or int(label) > _MOST:
        return None
    return (0, int(label), "")
