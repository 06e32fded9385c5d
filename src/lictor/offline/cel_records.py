"""Policies in CEL, sorted by what they judge: requests, bare payloads, or what is to be deleted."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from lictor.load.policies import Loaded
    from lictor.model.admission import AdmissionPolicy, Binding
    from lictor.model.cel_policy import CelException, CelPolicy, DeletingPolicy
    from lictor.model.policy import Policy

# Evaluators of their own: what they judge are requests to a service, not resources.
AUTHORIZING_MODES = ("HTTP", "Envoy")


class CelRecords(msgspec.Struct, frozen=True):
    """The policies that files hold, and what belongs to them."""

    admission_policies: "tuple[AdmissionPolicy, ...]" = ()
    bindings: "tuple[Binding, ...]" = ()
    policies: "tuple[CelPolicy, ...]" = ()
    exceptions: "tuple[CelException, ...]" = ()

    def __len__(self) -> int:
        """How many policies there are."""
        return len(self.admission_policies) + len(self.policies)

    @property
    def judging(self) -> "tuple[CelPolicy, ...]":
        """Kyverno's policies about resources."""
        return tuple(
            policy
            for policy in self.policies
            if kind_of(policy) != "DeletingPolicy" and mode_of(policy) not in AUTHORIZING_MODES
        )

    @property
    def deleting(self) -> "tuple[DeletingPolicy, ...]":
        return tuple(self._of_kind("DeletingPolicy"))

    def of_mode(self, *modes: str) -> "tuple[CelPolicy, ...]":
        """Those that judge what these modes are about."""
        return tuple(policy for policy in self.policies if mode_of(policy) in modes)

    def _of_kind(self, kind: str) -> "Iterator[DeletingPolicy]":
        for policy in self.policies:
            if kind_of(policy) == kind:
                yield policy  # type: ignore[misc]  # the kind tells the record


def collect_records(loaded: "Loaded") -> CelRecords:
    """The records of loaded files."""
    return CelRecords(
        tuple(each.record for each in loaded.admission_policies),
        tuple(each.record for each in loaded.bindings),
        tuple(each.record for each in loaded.cel_policies),
        tuple(each.record for each in loaded.cel_exceptions),
    )


def kind_of(policy: "Policy | AdmissionPolicy | CelPolicy") -> str:
    """The kind; a namespaced one and its twin are one."""
    return policy.kind.removeprefix("Namespaced")


def mode_of(policy: "CelPolicy") -> str:
    """What is judged: `Kubernetes` requests unless the policy says otherwise."""
    evaluation = getattr(policy.spec, "evaluation", None)
    return getattr(evaluation, "mode", "") or "Kubernetes"
