"""What can this release not do, although the policy is right?"""

from collections.abc import Iterator

from lictor.lint.cel.places import list_texts
from lictor.lint.part import Part
from lictor.model.finding import FieldPath
from lictor.raw import JsonObject

_VERIFIERS = ("verifyImageSignatures(", "verifyAttestationSignatures(", "extractPayload(")
_REFUSED = "signatures of images cannot be verified yet: images that it names are refused"
_UNDECIDED = "signatures of images cannot be verified yet: expressions that ask for them are errors"


def find_unsupported(document: JsonObject) -> Iterator[tuple[FieldPath, str]]:
    """Where something stands that nobody can do yet, and what becomes of requests meanwhile."""
    policy = Part(document)
    if policy["kind"].text.endswith("ImageValidatingPolicy"):
        if any(name in text for text in list_texts(policy["spec"]) for name in _VERIFIERS):
            yield ("spec",), _UNDECIDED
        return
    for rule in policy["spec"]["rules"].each():
        if not rule["verifyImages"].is_empty:
            yield rule["verifyImages"].path, _REFUSED
