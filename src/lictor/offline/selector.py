"""Which results of a test file to look at: `policy=...,rule=...,resource=...`, with wildcards."""

from collections.abc import Callable

import msgspec

from lictor.lang.wildcard import compile_wildcard
from lictor.model.offline import TestResult


class Selector(msgspec.Struct, frozen=True):
    """A test-case selector taken apart."""

    policies: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def named_resources(self) -> tuple[str, ...]:
        """The resources to look at instead of those that the file names."""
        # A selector with a fault selects, but replaces nothing; a star ends the list.
        if self.errors:
            return ()
        end = self.resources.index("*") if "*" in self.resources else len(self.resources)
        return self.resources[:end]


def parse_selector(text: str) -> Selector:
    """Take a selector apart; what is wrong with it goes to `errors`."""
    found: dict[str, list[str]] = {"policy": [], "rule": [], "resource": []}
    errors = []
    for part in text.split(",") if text else ():
        pieces = part.split("=")
        key = pieces[0].strip()
        if len(pieces) != 2:
            errors.append(
                f"Invalid test-case-selector argument ({part}). "
                "Parameter must be in the form `<key>=<value>`."
            )
        elif key in found:
            found[key].append(pieces[1].strip())
        else:
            errors.append(
                f"Invalid test-case-selector ({part}). "
                "Parameter can only be policy, rule or resource."
            )
    policies, rules, resources = (tuple(names) for names in found.values())
    return Selector(policies, rules, resources, tuple(errors))


def compile_selector(selector: Selector) -> Callable[[TestResult], bool]:
    """A test for results: every part of the selector must fit; a result without a name fits."""
    policies = [compile_wildcard(name) for name in selector.policies]
    rules = [compile_wildcard(name) for name in selector.rules]
    resources = [compile_wildcard(name) for name in selector.resources]

    def selects(result: TestResult) -> bool:
        return (
            (not result.policy or all(fits(result.policy) for fits in policies))
            and (not result.rule or all(fits(result.rule) for fits in rules))
            and (
                not result.resources or all(any(map(fits, result.resources)) for fits in resources)
            )
        )

    return selects
