"""Pod Security Standards: do the level, the version and the controls exist?"""

from collections.abc import Iterator

from lictor.errors import CompileError
from lictor.evaluate.pod_security import (
    CONTROL_NAMES,
    Exclusion,
    check_exclude,
    compile_pod_security,
)
from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.model.finding import Finding


def check_pod_security(rule: Part) -> Iterator[Finding]:
    """A podSecurity rule and what it leaves out."""
    standard = rule["validate"]["podSecurity"]
    if not standard:
        return
    level = standard["level"].text
    yield from _try_standard(standard["version"], level, standard["version"].text)
    for each in standard["exclude"].each():
        found = list(check_control(each))
        yield from found or _try_standard(each["controlName"], level, "", _read(each))


def check_control(exclude: Part) -> Iterator[Finding]:
    """One control that some images or values need not keep."""
    # A name that is none of the known ones is told where fields are checked.
    if exclude["controlName"].text not in CONTROL_NAMES:
        return
    try:
        check_exclude(_read(exclude))
    except CompileError as error:
        yield flag("bad-pod-security", exclude.path, error.message)


def _read(exclude: Part) -> Exclusion:
    return Exclusion(
        exclude["controlName"].text,
        exclude["images"].texts,
        exclude["restrictedField"].text,
        exclude["values"].texts,
    )


def _try_standard(
    at: Part, level: str, version: str, exclude: Exclusion | None = None
) -> Iterator[Finding]:
    if level not in ("", "privileged", "baseline", "restricted"):
        return
    if exclude is not None and exclude.control_name not in CONTROL_NAMES:
        return
    try:
        compile_pod_security(level, version, () if exclude is None else (exclude,))
    except CompileError as error:
        yield flag("bad-pod-security", at.path, error.message)
