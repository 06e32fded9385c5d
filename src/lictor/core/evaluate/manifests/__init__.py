"""Verifies manifests whose signature is in their annotations.

Most need only keys; certificates, logs, Secrets and images that contain a manifest are read through
`ports.Lookups`. A dry run needs a cluster and is not made.
"""

import msgspec

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.manifests.attestors import compile_attestors
from lictor.core.evaluate.manifests.difference import SignedDifference
from lictor.core.evaluate.manifests.evidence import compile_evidence
from lictor.core.evaluate.manifests.verifier import ManifestVerifier
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.model.program import Case, Check
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Failure, Result, Status
from lictor.core.model.signatures import Manifests
from lictor.core.raw import Json
from lictor.core.records import convert_record

_ERROR = "error occurred during manifest verification"
# A dry run would show which of the differences are only defaults.
_UNTRIED = "; dryRun was not tried, as it needs a cluster"


def compile_manifests(body: Json, setting: RuleContext) -> Check:
    """The check of a rule with `manifests`."""
    wanted = _read(body)
    untried = _UNTRIED if wanted.dry_run is not None and wanted.dry_run.enable else ""
    gather = compile_evidence(wanted)
    verifier = ManifestVerifier(setting.lookups, setting.policy.namespace)
    sets = [
        compile_attestors(each, wanted.repository, f".attestors[{index}]", verifier)
        for index, each in enumerate(wanted.attestors)
    ]

    def evaluate(request: Request) -> RuleOutcome:
        if request.object is None:
            raise EvaluationError("failed to Unmarshal a requested object: there is none")
        evidence = gather(request.object)
        texts = []
        for attest in sets:
            finding = attest(evidence)
            if not finding.verified:
                note = untried if finding.difference is not None else ""
                return RuleOutcome(Status.FAIL, finding.text + note, _locate(finding.difference))
            texts.append(finding.text)
        return RuleOutcome(Status.PASS, f"verified manifest signatures; {','.join(texts)}")

    def check(case: Case) -> tuple[Result, ...]:
        request = case.request
        if request.operation is Operation.DELETE:
            return ()
        if request.admission is not None and request.admission.get("dryRun") is True:
            outcome = RuleOutcome(Status.PASS, "allowed because of DryRun request")
        else:
            try:
                outcome = evaluate(request)
            except EvaluationError as error:
                outcome = RuleOutcome(Status.ERROR, f"{_ERROR}: {error}")
        return (setting.result(case, outcome),)

    return check


def _read(body: Json) -> Manifests:
    try:
        wanted = convert_record(body, Manifests)
    except msgspec.ValidationError as error:
        raise CompileError(f"validate.manifests: {error}") from error
    if not wanted.attestors:
        # Kyverno rejects such a policy; evaluated as written it would let everything pass.
        raise CompileError("validate.manifests: without attestors nothing would be verified")
    return wanted


def _locate(first: SignedDifference | None) -> Failure | None:
    if first is None:
        return None
    return Failure(first.key, first.before, first.after, "differs from what was signed")


__all__ = ["compile_manifests"]
