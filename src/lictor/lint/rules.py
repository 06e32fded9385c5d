"""Does a rule have a name, and does it do exactly one thing?"""

from collections.abc import Iterator

from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.model.finding import Finding

BODIES = ("validate", "mutate", "generate", "verifyImages")
_CHECKS = ("pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel", "manifests", "assert")
_LOOP_CHECKS = ("pattern", "anyPattern", "deny", "foreach")
_PATCHES = ("patchStrategicMerge", "patchesJson6902")
MAX_NAME = 63


def check_name(name: Part, what: str) -> Iterator[Finding]:
    """The name of a policy or rule."""
    if not name.text:
        yield flag("bad-name", name.path, f"the {what} has no name")
    elif len(name.text) > MAX_NAME:
        message = f"the name has {len(name.text)} characters; at most {MAX_NAME} are allowed"
        yield flag("bad-name", name.path, message)


def check_rule_names(rules: Part) -> Iterator[Finding]:
    """Each rule has a name of its own."""
    seen: set[str] = set()
    for rule in rules.each():
        name = rule["name"]
        # That the field is missing is told where fields are checked.
        if name:
            yield from check_name(name, "rule")
        if name.text and name.text in seen:
            message = f'another rule of this policy is named "{name.text}"'
            yield flag("duplicate-name", name.path, message)
        seen.add(name.text)


def check_bodies(rule: Part) -> Iterator[Finding]:
    """One of validate, mutate, generate and verifyImages."""
    found = [name for name in BODIES if not rule[name].is_empty]
    if len(found) != 1:
        names = " and ".join(found) or "none"
        message = f"expected exactly one of {', '.join(BODIES)}, found {names}"
        yield flag("bad-rule", rule.path, message)
    if rule["imageExtractors"] and "verifyImages" not in found:
        message = "imageExtractors are for verifyImages rules only"
        yield flag("bad-rule", rule["imageExtractors"].path, message)
    if rule["celPreconditions"] and not rule["validate"]["cel"]:
        message = "celPreconditions are for validate.cel rules only"
        yield flag("bad-rule", rule["celPreconditions"].path, message)


def check_validate(rule: Part) -> Iterator[Finding]:
    """One way of checking, and each loop with a list and one way of its own."""
    validate = rule["validate"]
    if validate.is_empty:
        return
    yield from _expect_one("bad-validate", validate, _CHECKS)
    yield from _check_loops(validate["foreach"])


def _check_loops(loops: Part) -> Iterator[Finding]:
    for loop in loops.each():
        yield from _check_list("bad-validate", loop)
        yield from _expect_one("bad-validate", loop, _LOOP_CHECKS)
        yield from _check_loops(loop["foreach"])


def _check_list(check: str, loop: Part) -> Iterator[Finding]:
    if loop.is_object and not loop["list"].text:
        yield flag(check, loop.path, "a foreach needs a list to go through")


def _expect_one(check: str, part: Part, names: tuple[str, ...]) -> Iterator[Finding]:
    found = part.present(*names)
    if part.is_object and len(found) != 1:
        shown = " and ".join(found) or "none"
        message = f"expected exactly one of {', '.join(names)}, found {shown}"
        yield flag(check, part.path, message)


def check_mutate(rule: Part) -> Iterator[Finding]:
    """One kind of patch, at the top or in each loop."""
    mutate = rule["mutate"]
    if mutate.is_empty:
        return
    yield from _expect_one("bad-mutate", mutate, (*_PATCHES, "foreach"))
    yield from _check_mutate_loops(mutate["foreach"])


def _check_mutate_loops(loops: Part) -> Iterator[Finding]:
    for loop in loops.each():
        yield from _check_list("bad-mutate", loop)
        yield from _expect_one("bad-mutate", loop, (*_PATCHES, "foreach"))
        if not loop["foreach"].is_empty and loop.present("context", "preconditions"):
            message = "a foreach around another foreach cannot have context or preconditions"
            yield flag("bad-mutate", loop.path, message)
        yield from _check_mutate_loops(loop["foreach"])
