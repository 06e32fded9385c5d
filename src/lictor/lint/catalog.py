"""The checks by code and name, read from checks.toml: severity and purpose."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

import msgspec

from lictor.core.model.finding import FieldPath, Finding, Severity, TextOffset


class LintCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a check."""

    # Never changes: ignore comments refer to it.
    code: str
    name: str
    severity: Severity
    summary: str
    # Reported only if selected by name.
    opt_in: bool = False


def _read_checks() -> Mapping[str, LintCheck]:
    text = resources.files(__package__).joinpath("checks.toml").read_text(encoding="utf-8")
    checks = msgspec.convert(
        [{"code": code, **fields} for code, fields in tomllib.loads(text).items()], list[LintCheck]
    )
    return MappingProxyType({check.name: check for check in checks})


CHECKS = _read_checks()


def flag(
    check: str,
    path: FieldPath,
    message: str,
    suggestion: str = "",
    offset: TextOffset | None = None,
) -> Finding:
    """A finding of a check at a path, with the severity of the catalogue."""
    return Finding(path, message, suggestion, CHECKS[check].severity, check, offset=offset)


def as_lint_finding(finding: Finding) -> Finding:
    """A finding of the loader about a field, as the corresponding check of `lint`."""
    # Unknown fields are warnings when policies are loaded, and errors here.
    is_unknown = finding.severity is Severity.WARNING
    check = "unknown-field" if is_unknown else "bad-field"
    return flag(check, finding.path, finding.message, finding.suggestion)
