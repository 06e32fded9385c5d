"""Which rules does a policy about Pods also have for the controllers that make Pods?

Everything here is settled when a policy is compiled; nothing here looks at a request.
"""

from collections.abc import Iterator

from lictor.core.errors import CompileError
from lictor.core.families.classic.autogen.controllers import (
    Targets,
    choose_targets,
    list_controllers,
)
from lictor.core.families.classic.autogen.pod_template import (
    IN_CRON_JOB,
    IN_TEMPLATE,
    IN_VALIDATED_TEMPLATE,
    nest_rule,
)
from lictor.core.model.policy import Policy, Rule

_PREFIX = "autogen"


def expand_rules(policy: Policy) -> tuple[Rule, ...]:
    """Give the rules as written, then those made for pod controllers, in Kyverno's order.

    Where rules are made, written ones named `autogen-...` are left out: they are the same rules, in
    a policy that was exported from a cluster.
    """
    rules = policy.spec.rules
    controllers = list_controllers(policy)
    try:
        made = tuple(new for rule in rules for new in _expand_rule(rule, controllers))
    except RecursionError as error:
        raise CompileError("nested too deeply", where=policy.metadata.name) from error
    return tuple(rule for rule in rules if not _is_made(rule)) + made if made else rules


def _expand_rule(rule: Rule, controllers: frozenset[str]) -> Iterator[Rule]:
    targets = Targets() if _is_made(rule) else choose_targets(rule, controllers)
    if targets.kinds:
        place = IN_TEMPLATE if rule.validate is None else IN_VALIDATED_TEMPLATE
        nested = nest_rule(rule, _make_name(_PREFIX, rule), targets.kinds, place)
        if nested is not None:
            yield nested
    if targets.cron_job:
        nested = nest_rule(rule, _make_name(f"{_PREFIX}-cronjob", rule), ("CronJob",), IN_CRON_JOB)
        if nested is not None:
            yield nested


def _is_made(rule: Rule) -> bool:
    return rule.name.startswith(f"{_PREFIX}-")


def _make_name(prefix: str, rule: Rule) -> str:
    # A rule's name is at most as long as a label's value; Kyverno counts and cuts bytes.
    return f"{prefix}-{rule.name}".encode()[:63].decode(errors="ignore")
