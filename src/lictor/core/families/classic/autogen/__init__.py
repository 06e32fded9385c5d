"""Which rules does a policy about Pods also have for the controllers that make Pods?

Everything here is settled when a policy is compiled; nothing here looks at a request.
"""

from collections.abc import Iterator

import msgspec

from lictor.core.errors import CompileError
from lictor.core.families.classic.autogen.controllers import (
    choose_targets,
    list_controllers,
)
from lictor.core.families.classic.autogen.pod_template import (
    IN_CRON_JOB,
    IN_TEMPLATE,
    IN_VALIDATED_TEMPLATE,
    Nesting,
    nest_body,
    nest_filters,
)
from lictor.core.model.policy import Policy, Rule

_PREFIX = "autogen"


class ExpandedRule(msgspec.Struct, frozen=True):
    """A rule as written, or one for pod controllers with the body of a rule about Pods."""

    rule: Rule
    # Where the body is to be moved; None for a rule as written.
    nesting: Nesting | None = None

    def write(self) -> Rule:
        """Return the rule with its body moved."""
        if self.nesting is None:
            return self.rule
        try:
            return nest_body(self.rule, self.nesting)
        except RecursionError as error:
            raise CompileError("nested too deeply", where=self.rule.name) from error


def expand_rules(policy: Policy) -> tuple[Rule, ...]:
    """Give the rules as written, then those made for pod controllers, in Kyverno's order."""
    return tuple(each.write() for each in list_expanded(policy))


def list_expanded(policy: Policy) -> tuple[ExpandedRule, ...]:
    """The same before bodies are moved: most policies never see a controller of some kinds.

    Where rules are made, written ones named `autogen-...` are left out: they are the same rules, in
    a policy that was exported from a cluster.
    """
    controllers = list_controllers(policy)
    written = [each for each in policy.spec.rules if not each.name.startswith(f"{_PREFIX}-")]
    made = [new for rule in written for new in _expand_rule(rule, controllers)]
    return (*map(ExpandedRule, written if made else policy.spec.rules), *made)


def _expand_rule(rule: Rule, controllers: frozenset[str]) -> Iterator[ExpandedRule]:
    targets = choose_targets(rule, controllers)
    if targets.kinds:
        place = IN_TEMPLATE if rule.validate is None else IN_VALIDATED_TEMPLATE
        nested = nest_filters(rule, _make_name(_PREFIX, rule), targets.kinds, place)
        yield ExpandedRule(nested, place)
    if targets.cron_job:
        name = _make_name(f"{_PREFIX}-cronjob", rule)
        yield ExpandedRule(nest_filters(rule, name, ("CronJob",), IN_CRON_JOB), IN_CRON_JOB)


def _make_name(prefix: str, rule: Rule) -> str:
    # A rule's name is at most as long as a label's value; Kyverno counts and cuts bytes.
    return f"{prefix}-{rule.name}".encode()[:63].decode(errors="ignore")
