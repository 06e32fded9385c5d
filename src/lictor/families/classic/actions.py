"""What follows from a failure: audit or enforce, as rule, policy and namespaces say."""

from collections.abc import Callable

from lictor.lang.wildcard import compile_wildcard
from lictor.match.selector import compile_selector
from lictor.model.policy import ActionOverride, Policy, Rule
from lictor.model.request import Request
from lictor.model.result import Action, RuleType

Override = Callable[[Request], Action | None]


def base_action(policy: Policy, rule: Rule) -> Action:
    """The action without overrides; the rule's word counts more than the policy's."""
    own = rule.validate.failure_action if rule.validate is not None else None
    if own is None and rule.verify_images:
        own = rule.verify_images[0].failure_action
    return parse_action(own or policy.spec.validation_failure_action)


def parse_action(text: str) -> Action:
    """`enforce` in either case; everything else is an audit."""
    return Action.ENFORCE if text.lower() == "enforce" else Action.AUDIT


def compile_override(policy: Policy, rule: Rule) -> Override | None:
    """How namespaces change the action; None where they do not."""
    own = rule.validate.failure_action_overrides if rule.validate is not None else ()
    overrides = own or policy.spec.validation_failure_action_overrides
    if not overrides:
        return None
    tests = [_compile_one(override) for override in overrides]

    def override(request: Request) -> Action | None:
        return next((action for test in tests if (action := test(request)) is not None), None)

    return override


def _compile_one(override: ActionOverride) -> Override:
    action = parse_action(override.action)
    names = [compile_wildcard(name) for name in override.namespaces]
    labels = (
        None
        if override.namespace_selector is None
        else compile_selector(override.namespace_selector)
    )

    def test(request: Request) -> Action | None:
        namespace = _namespace(request)
        if names and not any(fits(namespace) for fits in names):
            return None
        if labels is not None and not labels(request.namespace_labels):
            return None
        return action if names or labels is not None else None

    return test


def _namespace(request: Request) -> str:
    metadata = request.resource.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    name = metadata.get("name" if request.kind.kind == "Namespace" else "namespace")
    return name if isinstance(name, str) else ""


def list_expected_work(policy: Policy) -> frozenset[RuleType]:
    """What the rules of a policy do; nobody expects to hear of objects that are not generated."""
    done = {
        RuleType.MUTATION: any(rule.mutate is not None for rule in policy.spec.rules),
        RuleType.IMAGE_VERIFY: any(rule.verify_images for rule in policy.spec.rules),
        RuleType.VALIDATION: any(rule.validate is not None for rule in policy.spec.rules),
    }
    return frozenset(work for work, is_done in done.items() if is_done)
