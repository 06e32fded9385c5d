"""What the rules of a classic policy do, and what follows where they cannot be decided."""

from collections.abc import Callable, Iterator
from zlib import crc32

import msgspec

from lictor.core.families.kind_facts import GenerationSettings
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.match.metadata import compile_selector
from lictor.core.model.matching import Match
from lictor.core.model.policy import ActionOverride, ForEachGenerate, Generate, Mutate, Policy, Rule
from lictor.core.model.request import Request
from lictor.core.model.result import Action, RuleType

Override = Callable[[Request], Action | None]


def base_action(policy: Policy, rule: Rule) -> Action:
    """The action without overrides; that of the rule precedes that of the policy."""
    return parse_action(_find_own_action(rule) or policy.spec.validation_failure_action)


def _find_own_action(rule: Rule) -> str | None:
    """The action that the rule itself names: `Enforce` if any image block does."""
    if rule.validate is not None and rule.validate.failure_action is not None:
        return rule.validate.failure_action
    named = [each.failure_action for each in rule.verify_images if each.failure_action]
    return next((text for text in named if text.lower() == "enforce"), next(iter(named), None))


def parse_action(text: str) -> Action:
    """`enforce` in either case; everything else is an audit."""
    return Action.ENFORCE if text.lower() == "enforce" else Action.AUDIT


def compile_override(policy: Policy, rule: Rule) -> Override | None:
    """How namespaces change the action; None where they do not.

    As in Kyverno 1.19, an action that the rule names precedes the overrides of the policy.
    """
    overrides = rule.validate.failure_action_overrides if rule.validate is not None else ()
    if _find_own_action(rule) is None:
        overrides = (*overrides, *policy.spec.validation_failure_action_overrides)
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
        return action

    return test


def _namespace(request: Request) -> str:
    metadata = request.resource.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    name = metadata.get("name" if request.kind.kind == "Namespace" else "namespace")
    return name if isinstance(name, str) else ""


def list_expected_work(policy: Policy) -> frozenset[RuleType]:
    """The kinds of results of the rules; a test expects none for objects that are not generated."""
    done = {
        RuleType.MUTATION: any(rule.mutate is not None for rule in policy.spec.rules),
        RuleType.IMAGE_VERIFY: any(rule.verify_images for rule in policy.spec.rules),
        RuleType.VALIDATION: any(rule.validate is not None for rule in policy.spec.rules),
    }
    return frozenset(work for work, is_done in done.items() if is_done)


def is_asked(policy: Policy, *, mutating: bool) -> bool:
    """Has a policy rules for requests that are mutated, or validated?"""
    test = is_mutating_rule if mutating else is_validating_rule
    return any(test(rule) for rule in policy.spec.rules)


def is_mutating_rule(rule: Rule) -> bool:
    """Can a rule change the object of a request?"""
    changes = rule.mutate is not None and rule.mutate != Mutate() and not rule.mutate.targets
    return changes or bool(rule.verify_images)


def is_validating_rule(rule: Rule) -> bool:
    """Does a rule check the object as it will be stored, or follow from it being stored?"""
    changes_others = rule.mutate is not None and bool(rule.mutate.targets)
    checks = rule.validate is not None or checks_finished_images(rule)
    return checks or rule.generate is not None or changes_others


def checks_finished_images(rule: Rule) -> bool:
    """Does a rule require that images have a digest, or were verified, in the finished object?"""
    return any(each.verify_digest or each.required for each in rule.verify_images)


def read_mode(policy: Policy) -> str:
    """Whether anything of a policy enforces, in the words of metrics."""
    said: list[str] = [policy.spec.validation_failure_action]
    said += [r.validate.failure_action or "" for r in policy.spec.rules if r.validate is not None]
    return "enforce" if any(text.lower() == "enforce" for text in said) else "audit"


def list_existing_mutations(policy: Policy) -> frozenset[str]:
    """The rules that change what is there when their policy comes or changes."""
    default = policy.spec.mutate_existing_on_policy_update
    return frozenset(
        rule.name
        for rule in policy.spec.rules
        if rule.mutate is not None
        and rule.mutate.targets
        and _or_default(rule.mutate.mutate_existing_on_policy_update, default)
    )


def _or_default(own: bool | None, default: bool) -> bool:  # noqa: FBT001  (fields of the policy)
    return default if own is None else own


def is_about_every_kind(policy: Policy) -> bool:
    """A policy about every kind is never evaluated in the background, as in Kyverno."""
    return any("*" in kinds for rule in policy.spec.rules for kinds in _list_kinds(rule.match))


def _list_kinds(match: Match) -> Iterator[tuple[str, ...]]:
    yield match.resources.kinds
    for each in (*match.any, *match.all):
        yield each.resources.kinds


def list_generations(policy: Policy) -> Iterator[GenerationSettings]:
    """How each rule that generates looks after what it made."""
    spec = policy.spec
    for rule in spec.rules:
        generate = rule.generate
        if generate is not None:
            yield GenerationSettings(
                rule.name,
                generate.synchronize,
                generate.orphan_downstream_on_policy_delete or not _makes_data(generate),
                _or_default(generate.generate_existing, spec.generate_existing),
                spec.use_server_side_apply,
                _hash_targets(generate),
                tuple(_list_target_kinds(generate)),
            )


def list_chained_rules(policy: Policy) -> Iterator[str]:
    """The rules that want to hear of requests that lictor itself makes."""
    return (rule.name for rule in policy.spec.rules if not rule.skip_background_requests)


def _list_target_kinds(generate: Generate) -> Iterator[str]:
    bodies: tuple[Generate | ForEachGenerate, ...] = (generate, *generate.foreach)
    for body in bodies:
        texts = [f"{body.api_version}/{body.kind}"] if body.kind else []
        yield from (text for text in (*texts, *body.clone_list.kinds) if "{{" not in text)


def _hash_targets(generate: Generate) -> str:
    bodies: tuple[Generate | ForEachGenerate, ...] = (generate, *generate.foreach)
    said = [
        (body.api_version, body.kind, body.namespace, body.name, body.clone, body.clone_list)
        for body in bodies
    ]
    return f"{crc32(msgspec.json.encode(said)):08x}"


def _makes_data(generate: Generate) -> bool:
    """Copies outlive the policy that made them; what it wrote itself does not."""
    if generate.foreach:
        return any(block.data is not None for block in generate.foreach)
    return generate.data is not None
