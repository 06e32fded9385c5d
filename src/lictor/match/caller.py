"""Is this caller meant? Tests of subjects, roles and cluster roles."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from lictor.match.texts import compile_any_wildcard
from lictor.model.policy import ResourceFilter, Subject
from lictor.model.program import Matcher
from lictor.model.request import Caller

CallerTest: TypeAlias = Callable[[Caller], bool]

_NOBODY = Caller()


def compile_callers(
    wanted: ResourceFilter, *, unknown: bool | None
) -> Iterator[tuple[str, Matcher]]:
    """Give a matcher for each clause about the caller, with the clause's name.

    `unknown` is the answer where nobody knows who asks; None lets the test itself answer, about a
    caller without name, groups or roles.
    """
    for name, test in _compile_tests(wanted):
        yield name, _ask(test, unknown=test(_NOBODY) if unknown is None else unknown)


def _ask(test: CallerTest, *, unknown: bool) -> Matcher:
    return lambda request: unknown if request.caller is None else test(request.caller)


def _compile_tests(wanted: ResourceFilter) -> Iterator[tuple[str, CallerTest]]:
    if wanted.roles:
        roles = frozenset(wanted.roles)
        yield "roles", lambda caller: not roles.isdisjoint(caller.roles)
    if wanted.cluster_roles:
        cluster_roles = frozenset(wanted.cluster_roles)
        yield "clusterRoles", lambda caller: not cluster_roles.isdisjoint(caller.cluster_roles)
    if wanted.subjects:
        yield "subjects", _compile_subjects(wanted.subjects)


def _compile_subjects(subjects: Iterable[Subject]) -> CallerTest:
    users: list[str] = []
    groups: list[str] = []
    for subject in subjects:
        match subject.kind:
            case "User":
                users.append(subject.name)
            case "ServiceAccount":
                users.append(f"system:serviceaccount:{subject.namespace}:{subject.name}")
            case "Group":
                groups.append(subject.name)
            # Any other kind is nobody.
    is_user = compile_any_wildcard(users)
    is_group = compile_any_wildcard(groups)
    return lambda caller: is_user(caller.username) or any(map(is_group, caller.groups))
