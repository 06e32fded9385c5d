"""How a manifest differs from what is in the cluster, and what is left of it without some fields."""

import pytest

from lictor.install.differences import (
    InstallationDifference,
    describe_change,
    describe_difference,
    find_differences,
    keep_fields,
)

ADMISSION = 'k:{"name":"admission"}'
CONTAINERS = ("f:spec", "f:containers", ADMISSION)
OURS = {
    "metadata": {"name": "a", "labels": {"app.kubernetes.io/version": "2"}},
    "spec": {
        "replicas": 3,
        "nodeSelector": {"os": "linux"},
        "containers": [
            {"name": "admission", "image": "i:2", "args": ["serve"], "resources": {"cpu": "1"}}
        ],
    },
}


def own(*paths):
    """The fields of a manager as managedFields has them."""
    fields = {}
    for path in paths:
        node = fields
        for step in path:
            node = node.setdefault(step, {})
    return fields


def build_live(manager, *paths, **spec):
    container = {"name": "admission", "image": "i:2", "args": ["serve"], "resources": {"cpu": "1"}}
    container = {**container, **spec.pop("container", {})}
    ours = own(
        ("f:spec", "f:replicas"),
        ("f:spec", "f:nodeSelector"),
        (*CONTAINERS, "f:name"),
        (*CONTAINERS, "f:image"),
        (*CONTAINERS, "f:args"),
        (*CONTAINERS, "f:resources", "f:cpu"),
        ("f:metadata", "f:labels", "f:app.kubernetes.io/version"),
    )
    entries = [{"manager": "lictor-install", "fieldsV1": ours}]
    if paths:
        entries.append({"manager": manager, "fieldsV1": own(*paths)})
    return {
        "metadata": {**OURS["metadata"], "managedFields": entries, "uid": "u"},
        "spec": {
            "replicas": 3,
            "nodeSelector": {"os": "linux"},
            "containers": [container],
            **spec,
        },
    }


ROWS = [
    ("nothing differs", build_live("x"), []),
    ("what others added is not ours", build_live("x", ("f:spec", "f:more"), more=1), []),
    (
        "a field that someone scaled",
        build_live("kubectl", ("f:spec", "f:replicas"), replicas=5),
        [InstallationDifference(("f:spec", "f:replicas"), 5, 3, "kubectl")],
    ),
    (
        "a field of ours that changed",
        build_live("x", container={"image": "i:1"}),
        [InstallationDifference((*CONTAINERS, "f:image"), "i:1", "i:2")],
    ),
    (
        "a field in a list, by its key",
        build_live("edit", (*CONTAINERS, "f:args"), container={"args": ["serve", "-v"]}),
        [InstallationDifference((*CONTAINERS, "f:args"), ["serve", "-v"], ["serve"], "edit")],
    ),
    (
        "a map that is one value",
        build_live("edit", ("f:spec", "f:nodeSelector"), nodeSelector={"os": "linux", "a": "b"}),
        [
            InstallationDifference(
                ("f:spec", "f:nodeSelector"), {"os": "linux", "a": "b"}, {"os": "linux"}, "edit"
            )
        ],
    ),
    (
        "a field that is gone",
        build_live("x", container={"resources": {}}),
        [InstallationDifference((*CONTAINERS, "f:resources", "f:cpu"), None, "1")],
    ),
    (
        "an element that is gone",
        build_live("x", containers=[]),
        [InstallationDifference(CONTAINERS, None, OURS["spec"]["containers"][0])],
    ),
]


@pytest.mark.parametrize(("live", "found"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_finding_differences(live, found):
    assert find_differences(OURS, live) == found


def test_keeping_fields():
    kept = [
        # Without another owner the field would be removed if it were left out.
        InstallationDifference(("f:spec", "f:replicas"), 5, 3),
        InstallationDifference((*CONTAINERS, "f:args"), ["serve", "-v"], ["serve"], "edit"),
    ]
    left = keep_fields(OURS, kept)
    assert left["metadata"] == OURS["metadata"]
    assert left["spec"] == {
        "replicas": 5,
        "nodeSelector": {"os": "linux"},
        "containers": [{"name": "admission", "image": "i:2", "resources": {"cpu": "1"}}],
    }


def test_telling_a_difference():
    few = InstallationDifference((*CONTAINERS, "f:image"), "i:1", "i:2", "kubectl-edit")
    assert describe_difference(few) == [
        "spec.containers[admission].image (set by kubectl-edit)",
        "  cluster: i:1",
        "  lictor:  i:2",
    ]
    assert describe_change(few) == "spec.containers[admission].image: i:1 -> i:2"
    gone = InstallationDifference(("f:data", "f:excludeGroups"), None, "system:nodes")
    assert describe_difference(gone)[1] == "  cluster: (not set)"


def test_long_lists_are_told_by_the_words_that_differ():
    words = [f"[Kind{number},*,*]" for number in range(20)]
    here, ours = " ".join([*words, "[Mine,*,*]"]), " ".join(["[Yours,*,*]", *words])
    assert describe_difference(
        InstallationDifference(("f:data", "f:resourceFilters"), here, ours)
    ) == [
        "data.resourceFilters",
        "  only in the cluster: [Mine,*,*]",
        "  only lictor's:       [Yours,*,*]",
    ]
