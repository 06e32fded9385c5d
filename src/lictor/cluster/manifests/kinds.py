"""Which kinds an installation brings, and what `kubectl get` shows of them. Two tables."""

from typing import Final

import msgspec

KYVERNO = "kyverno.io"
CEL = "policies.kyverno.io"
EPHEMERAL = "reports.kyverno.io"
REPORTS = "wgpolicyk8s.io"
OPEN_REPORTS = "openreports.io"
GROUPS: Final = (KYVERNO, CEL, EPHEMERAL, REPORTS, OPEN_REPORTS)


class Version(msgspec.Struct, frozen=True):
    """One version of a kind."""

    name: str
    served: bool = True
    storage: bool = False
    deprecated: bool = False


class Kind(msgspec.Struct, frozen=True):
    """A kind: its names, its versions, and which records or shapes its schema comes from."""

    group: str
    name: str
    short: str
    namespaced: bool
    versions: tuple[Version, ...]
    # Either a spec and perhaps a status, or one shape with all fields beside the metadata.
    spec: str
    status: str
    whole: str
    columns: str
    description: str

    @property
    def plural(self) -> str:
        name = self.name.lower()
        return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


# --- what kubectl shows: name, type, path, and a + where only `-o wide` shows it

_AGE = "AGE | date | .metadata.creationTimestamp"
_POLICY_COLUMNS = f"""
ADMISSION | boolean | .spec.admission
BACKGROUND | boolean | .spec.background
READY | string | .status.conditions[?(@.type == "Ready")].status
{_AGE}
FAILURE POLICY | string | .spec.failurePolicy | +
VALIDATE | integer | .status.rulecount.validate | +
MUTATE | integer | .status.rulecount.mutate | +
GENERATE | integer | .status.rulecount.generate | +
VERIFY IMAGES | integer | .status.rulecount.verifyimages | +
MESSAGE | string | .status.conditions[?(@.type == "Ready")].message
"""
_CLEANUP_COLUMNS = """
Schedule | string | .spec.schedule
Age | date | .metadata.creationTimestamp
"""
_CEL_COLUMNS = f"""
{_AGE}
READY | string | .status.conditionStatus.ready
"""
_GLOBAL_CONTEXT_COLUMNS = f"""
{_AGE}
REFRESH INTERVAL | string | .spec.apiCall.refreshInterval
LAST REFRESH | date | .status.lastRefreshTime
"""
_UPDATE_REQUEST_COLUMNS = """
Policy | string | .spec.policy
RuleType | string | .spec.requestType
ResourceKind | string | .spec.resource.kind
ResourceName | string | .spec.resource.name
ResourceNamespace | string | .spec.resource.namespace
status | string | .status.state
Age | date | .metadata.creationTimestamp
"""
_REPORT_COLUMNS = """
Kind | string | .scope.kind
Name | string | .scope.name
Pass | integer | .summary.pass
Fail | integer | .summary.fail
Warn | integer | .summary.warn
Error | integer | .summary.error
Skip | integer | .summary.skip
Age | date | .metadata.creationTimestamp
"""
_OPEN_REPORT_COLUMNS = _REPORT_COLUMNS.replace("kind\n", "kind | +\n").replace(
    "scope.name\n", "scope.name | +\n"
)
_EPHEMERAL_COLUMNS = r"""
Source | string | .metadata.labels['audit\.kyverno\.io/source']
Group | string | .metadata.labels['audit\.kyverno\.io/resource\.group']
Kind | string | .metadata.labels['audit\.kyverno\.io/resource\.kind']
Owner | string | .metadata.annotations['audit\.kyverno\.io/resource\.name']
Pass | integer | .spec.summary.pass
Fail | integer | .spec.summary.fail
Warn | integer | .spec.summary.warn
Error | integer | .spec.summary.error
Skip | integer | .spec.summary.skip
Age | date | .metadata.creationTimestamp
Uid | string | .metadata.labels['audit\.kyverno\.io/resource\.uid'] | +
Hash | string | .metadata.labels['audit\.kyverno\.io/resource\.hash'] | +
"""


_COLUMNS = {
    "policy": _POLICY_COLUMNS,
    "cleanup": _CLEANUP_COLUMNS,
    "cel": _CEL_COLUMNS,
    "globalcontext": _GLOBAL_CONTEXT_COLUMNS,
    "updaterequest": _UPDATE_REQUEST_COLUMNS,
    "report": _REPORT_COLUMNS,
    "openreport": _OPEN_REPORT_COLUMNS,
    "ephemeral": _EPHEMERAL_COLUMNS,
    "-": "",
}

# --- the kinds: name, short name, scope, versions (`*` is stored, `!` deprecated, `-` not served),
# spec and status or the whole, columns, description

_CLASSIC = """
ClusterPolicy | cpol | Cluster | v1* v2beta1 | policy.Spec PolicyStatus | policy | Rules for the \
whole cluster: what resources must look like, how they are changed, what is made for them, whose \
images they may use.
Policy | pol | Namespaced | v1* v2beta1 | policy.Spec PolicyStatus | policy | Rules for the \
namespace that the policy is in: what resources must look like, how they are changed, what is made \
for them, whose images they may use.
PolicyException | polex | Namespaced | v2* v2beta1! | exception.ExceptionSpec | - | Resources that \
need not keep some rules of ClusterPolicies and Policies.
CleanupPolicy | cleanpol | Namespaced | v2* v2beta1! | cleanup.CleanupSpec CleanupStatus | cleanup \
| Objects of this namespace that are deleted on a schedule.
ClusterCleanupPolicy | ccleanpol | Cluster | v2* v2beta1! | cleanup.CleanupSpec CleanupStatus \
| cleanup | Objects of the whole cluster that are deleted on a schedule.
GlobalContextEntry | gctxentry | Cluster | v2 v2beta1* v2alpha1! | GlobalContextSpec \
GlobalContextStatus | globalcontext | Data that policies use by name: objects of the cluster, or \
the answer of a call.
UpdateRequest | ur | Namespaced | v2* v1beta1-! | UpdateRequestSpec? UpdateRequestStatus \
| updaterequest | Work that waits: objects to make or to change because of a request.
"""
_CEL = """
ValidatingPolicy | vpol | cel_policy.ValidatingSpec CelStatus | What must hold, in CEL
MutatingPolicy | mpol | cel_policy.MutatingSpec CelStatus | What is changed, in CEL
GeneratingPolicy | gpol | cel_policy.GeneratingSpec GeneratingStatus | Objects that are made \
because of others, in CEL
DeletingPolicy | dpol | cel_policy.DeletingSpec DeletingStatus | Objects that are deleted on a \
schedule, in CEL
ImageValidatingPolicy | ivpol | cel_policy.ImageValidatingSpec ImageStatus | Whose images may be \
used, in CEL
"""
# The short name polex belongs to the other PolicyException.
_CEL_EXCEPTION = """
PolicyException | - | Namespaced | v1 v1beta1* v1alpha1! | cel_policy.CelExceptionSpec | - \
| Requests, images or values that need not keep some CEL policies.
"""
_EPHEMERAL = """
EphemeralReport | ephr | Namespaced | v1* | EphemeralReportSpec | ephemeral | Results on their way \
into a report; they come and go.
ClusterEphemeralReport | cephr | Cluster | v1* | EphemeralReportSpec | ephemeral | Results on \
their way into a report; they come and go.
"""
_REPORTS = """
PolicyReport | polr | Namespaced | v1alpha2* | =PolicyReport | report | What policies say of a \
resource of this namespace.
ClusterPolicyReport | cpolr | Cluster | v1alpha2* | =PolicyReport | report | What policies say of \
a resource that is in no namespace.
"""
_OPEN_REPORTS = """
Report | reps | Namespaced | v1alpha1* | =OpenReport | openreport | What policies say of a \
resource of this namespace.
ClusterReport | creps | Cluster | v1alpha1* | =OpenReport | openreport | What policies say of a \
resource that is in no namespace.
"""


def _read_kinds(group: str, table: str) -> list[Kind]:
    return [_read_kind(group, line) for line in table.splitlines() if line]


def _read_kind(group: str, line: str) -> Kind:
    name, short, scope, versions, shapes, columns, words = (w.strip() for w in line.split(" | "))
    spec, _, status = shapes.partition(" ")
    whole = spec.startswith("=")
    return Kind(
        group=group,
        name=name,
        short=short.strip("-"),
        namespaced=scope == "Namespaced",
        versions=tuple(_read_version(word) for word in versions.split()),
        spec="" if whole else spec,
        status=status,
        whole=spec[1:] if whole else "",
        columns=_COLUMNS[columns],
        description=words,
    )


def _read_version(word: str) -> Version:
    return Version(word.rstrip("*!-"), "-" not in word, "*" in word, "!" in word)


def _double(line: str) -> str:
    """A CEL kind and its namespaced twin, which is newer and has no alpha version."""
    name, short, shapes, words = line.split(" | ")
    return (
        f"{name} | {short} | Cluster | v1 v1beta1* v1alpha1! | {shapes} | cel | {words}, for the "
        f"whole cluster.\nNamespaced{name} | n{short} | Namespaced | v1 v1beta1* | {shapes} | cel "
        f"| {words}, for the namespace that the policy is in."
    )


KINDS: Final[tuple[Kind, ...]] = (
    *_read_kinds(KYVERNO, _CLASSIC),
    *_read_kinds(CEL, "\n".join(_double(line) for line in _CEL.splitlines() if line)),
    *_read_kinds(CEL, _CEL_EXCEPTION),
    *_read_kinds(EPHEMERAL, _EPHEMERAL),
    *_read_kinds(REPORTS, _REPORTS),
    *_read_kinds(OPEN_REPORTS, _OPEN_REPORTS),
)
