"""Policies as admission policies of Kubernetes' own, which the API server evaluates itself.

Nothing is sent anywhere here: policies and exceptions become plain objects. A CompileError says why
a policy cannot be made native; its text is shown in the policy's status.
"""

from lictor.convert.native.cel import build_mutating, build_validating
from lictor.convert.native.classic import build_classic
from lictor.convert.native.objects import FindResources, Found, NativePair, Owner

__all__ = [
    "FindResources",
    "Found",
    "NativePair",
    "Owner",
    "build_classic",
    "build_mutating",
    "build_validating",
]
