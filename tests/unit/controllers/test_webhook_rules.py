"""Entries into rules: merged, without what a wider one covers, always in one order."""

import itertools

import pytest

from lictor.controllers.webhook_configuration.rules import RuleEntry, build_rules, order_rules


def entries(text):
    """Lines of `group version path scope operations`; `-` is the core group."""
    for line in text.strip().splitlines():
        group, version, path, scope, operations = line.split()
        resource, _, subresource = path.partition("/")
        for operation in operations.split(","):
            group = "" if group == "-" else group
            yield RuleEntry(group, version, resource, subresource, scope, operation)


def show(rules):
    return [
        " ".join(
            (
                ",".join(rule["apiGroups"]) or "-",
                ",".join(rule["apiVersions"]),
                ",".join(rule["resources"]),
                rule["scope"],
                ",".join(rule["operations"]),
            )
        )
        for rule in rules
    ]


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        pytest.param(
            "- v1 configmaps Namespaced UPDATE,CREATE",
            ["- v1 configmaps Namespaced CREATE,UPDATE"],
            id="operations-sorted",
        ),
        pytest.param(
            """
            - v1 secrets Namespaced CREATE
            - v1 configmaps Namespaced CREATE
            """,
            ["- v1 configmaps,secrets Namespaced CREATE"],
            id="same-operations-share-a-rule",
        ),
        pytest.param(
            """
            - v1 secrets Namespaced CREATE
            - v1 configmaps Namespaced CREATE,DELETE
            """,
            ["- v1 configmaps Namespaced CREATE,DELETE", "- v1 secrets Namespaced CREATE"],
            id="other-operations-do-not",
        ),
        pytest.param(
            """
            - v1 namespaces * CREATE
            - v1 secrets Namespaced CREATE
            apps v1 deployments Namespaced CREATE
            """,
            [
                "- v1 namespaces * CREATE",
                "- v1 secrets Namespaced CREATE",
                "apps v1 deployments Namespaced CREATE",
            ],
            id="scopes-and-groups-apart",
        ),
        pytest.param(
            "- v1 pods Namespaced CREATE",
            ["- v1 pods,pods/ephemeralcontainers Namespaced CREATE"],
            id="debug-containers",
        ),
        pytest.param(
            "- v1 pods/exec Namespaced CONNECT",
            ["- v1 pods/exec Namespaced CONNECT"],
            id="no-debug-containers-for-a-part",
        ),
        pytest.param(
            """
            * * * * CREATE,UPDATE
            - v1 secrets Namespaced CREATE,DELETE
            """,
            [
                "- v1 secrets Namespaced DELETE",
                "* * *,pods/ephemeralcontainers * CREATE,UPDATE",
            ],
            id="covered-by-everything",
        ),
        pytest.param(
            """
            * * */* * CREATE
            * * * * CREATE
            * * */scale * CREATE
            - v1 pods/exec Namespaced CREATE
            """,
            ["* * */* * CREATE"],
            id="everything-with-parts",
        ),
        pytest.param(
            """
            * * * * CREATE
            - v1 pods/exec Namespaced CREATE
            """,
            [
                "- v1 pods/exec Namespaced CREATE",
                "* * *,pods/ephemeralcontainers * CREATE",
            ],
            id="everything-has-no-parts",
        ),
        pytest.param(
            """
            * * */scale * CREATE
            apps v1 deployments/scale Namespaced CREATE
            apps v1 deployments Namespaced CREATE
            """,
            ["* * */scale * CREATE", "apps v1 deployments Namespaced CREATE"],
            id="a-part-of-everything",
        ),
        pytest.param(
            """
            - v1 pods/* Namespaced CREATE
            - v1 pods/exec Namespaced CREATE
            - v1 pods Namespaced CREATE
            """,
            ["- v1 pods,pods/*,pods/ephemeralcontainers Namespaced CREATE"],
            id="all-parts-of-one",
        ),
        pytest.param("", [], id="nothing"),
    ],
)
def test_build(given, rules):
    listed = list(entries(given))
    assert show(build_rules(listed)) == rules
    assert show(build_rules(reversed(listed))) == rules


def test_order_does_not_depend_on_the_input():
    def rule(groups, resources, operations=("CREATE",)):
        return {
            "apiGroups": groups,
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": resources,
            "scope": "*",
        }

    rules = [
        rule(["batch"], ["jobs"]),
        rule(["batch"], ["cronjobs"]),
        rule([""], ["secrets", "pods"]),
        rule([""], ["pods", "secrets"]),
    ]
    expected = [
        "- v1 pods,secrets * CREATE",
        "batch v1 cronjobs * CREATE",
        "batch v1 jobs * CREATE",
    ]
    for permutation in itertools.permutations(rules):
        assert show(order_rules(permutation)) == expected
    # What comes from a policy is not changed in place.
    assert rules[2]["resources"] == ["secrets", "pods"]
