"""Policies in CEL become programs; no request is judged here.

Importing this package loads no engine: the compiler of a kind is imported when a policy needs it.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from lictor.model.program import Program

if TYPE_CHECKING:
    from lictor.evaluate.cel.context import CelContext
    from lictor.model.admission import AdmissionPolicy
    from lictor.model.cel_policy import CelPolicy

# Kind, without "Namespaced" -> the function that compiles it: (policy, CelContext) -> Program.
# Kinds whose results are not about requests (DeletingPolicy) are not here.
_COMPILERS = {
    "ValidatingPolicy": "validating.compile_validating",
    "ImageValidatingPolicy": "image_validating.compile_image_validating",
    "ValidatingAdmissionPolicy": "admission.compile_admission",
    "MutatingPolicy": "mutating.compile_mutating",
    "GeneratingPolicy": "generating.compile_generating",
    "MutatingAdmissionPolicy": "admission_mutating.compile_mutating_admission",
}


def compile_cel_policies(
    policies: "Iterable[AdmissionPolicy | CelPolicy]", around: "CelContext"
) -> Iterator[Program]:
    """Compile policies of all CEL kinds; they share their expressions."""
    for policy in policies:
        path = _COMPILERS.get(policy.kind.removeprefix("Namespaced"))
        if path is None:
            continue
        module, _, function = path.partition(".")
        yield getattr(import_module(f"{__name__}.{module}"), function)(policy, around)
