"""Would these policies let a Pod with this image in, and why? For `verify --policy`."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from lictor.cli.explanations import Explainer, load_explained_policies
from lictor.cli.inputs.lookups import GivenObjects
from lictor.cli.inputs.requests import RequestFactory
from lictor.core.errors import UsageError
from lictor.core.model.cel_policy import ImageValidatingSpec
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.policy import CelExpression, Policy, VerifyImages
from lictor.core.model.result import Status
from lictor.core.ports import Registries
from lictor.core.raw import JsonObject
from lictor.core.report.explanation import Explanation

_REFUSALS = (Status.FAIL, Status.ERROR)
# Where matchImageReferences leaves the image out, no validation has looked at it.
_ABOUT_IMAGE = CelExpression(
    expression="size(images.containers) > 0", message="the policy is not about this image"
)


class ImagePolicies(msgspec.Struct, frozen=True):
    """Policies that verify images; their other rules are left out."""

    explainers: tuple[tuple[str, Explainer], ...]

    @classmethod
    def load(cls, paths: tuple[str, ...], rule: str, registries: Registries) -> "ImagePolicies":
        """Load policies. Raises UsageError if none of them verifies images."""
        loaded = load_explained_policies(paths)
        policies = [each for policy in loaded.policies for each in _keep_image_rules(policy, rule)]
        if not policies:
            wanted = f" has a rule {rule} that" if rule else ""
            raise UsageError(f"no policy in {', '.join(paths)}{wanted} verifies images")
        given = GivenObjects(registries=registries, crds=loaded.crds)
        return cls(
            tuple(
                (
                    policy.metadata.namespace or "default",
                    Explainer(
                        replace(loaded, policies=(policy,), deletions=()),
                        loaded.exceptions,
                        RequestFactory(),
                        given,
                        rule,
                    ),
                )
                for policy in policies
            )
        )

    def explain(self, image: str) -> tuple[Explanation, ...]:
        """Return the result of each policy for a Pod with this image."""
        return tuple(
            _leave_idle_out(each)
            for namespace, explainer in self.explainers
            for each in explainer.explain(_make_pod(image, namespace))
        )


def conclude_policies(explanations: Sequence[Explanation]) -> tuple[bool, str]:
    """Whether policies accept the image, and in one sentence why or why not."""
    refused, accepted = list[str](), list[str]()
    for explanation in explanations:
        answers = {result.status for rule in explanation.rules for result in rule.results}
        if answers.intersection(_REFUSALS):
            refused.append(explanation.policy)
        elif Status.PASS in answers:
            accepted.append(explanation.policy)
    if refused:
        return False, f"refused by {', '.join(refused)}"
    if not accepted:
        # No policy has verified it: that is no proof.
        return False, "no policy is about this image"
    return True, f"accepted by {', '.join(accepted)}"


def _keep_image_rules(policy: PolicyRecord, rule: str) -> Iterator[PolicyRecord]:
    """What of a policy verifies images. Someone must have: to let an image in proves nothing."""
    if isinstance(policy.spec, ImageValidatingSpec) and isinstance(policy, msgspec.Struct):
        spec = policy.spec
        required = replace(spec.validation_configurations, required=True)
        # With evaluation.mode JSON, a policy finds its images in its own fields only.
        added = () if spec.evaluation.mode == "JSON" else (_ABOUT_IMAGE,)
        validations = (*spec.validations, *added)
        spec = replace(spec, validation_configurations=required, validations=validations)
        yield replace(policy, spec=spec)
    elif isinstance(policy, Policy):
        rules = tuple(
            replace(each, verify_images=_require(each.verify_images))
            for each in policy.spec.rules
            if each.verify_images and rule in ("", each.name)
        )
        if rules:
            yield replace(policy, spec=replace(policy.spec, rules=rules))


def _require(blocks: Sequence[VerifyImages]) -> tuple[VerifyImages, ...]:
    verifying = [each for each in blocks if _verifies(each)]
    return tuple(replace(each, required=True) for each in verifying or blocks)


def _verifies(block: VerifyImages) -> bool:
    return bool(block.attestors or block.attestations or block.key or block.issuer or block.subject)


def _leave_idle_out(explanation: Explanation) -> Explanation:
    """Without the rules that autogen made for other kinds than Pods."""
    kept = [
        rule for rule in explanation.rules if rule.matched or not rule.rule.startswith("autogen-")
    ]
    return replace(explanation, rules=tuple(kept))


def _make_pod(image: str, namespace: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "verified", "namespace": namespace},
        "spec": {"containers": [{"name": "verified", "image": image}]},
    }
