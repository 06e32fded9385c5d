"""Roles of a caller, from bindings."""

import pytest

from lictor.core.model.request import Caller
from lictor.kubernetes.cache import Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.rbac import RoleCache


def bind(name: str, role: str, *subjects: dict, namespace: str = "") -> dict:
    kind, _, role_name = role.partition("/")
    return {
        "metadata": {"name": name, "namespace": namespace or None, "resourceVersion": "1"},
        "roleRef": {"kind": kind, "name": role_name},
        "subjects": list(subjects) or None,
    }


JANE = {"kind": "User", "name": "jane"}
DEV = {"kind": "Group", "name": "dev"}
ROBOT = {"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}
NEAR_ROBOT = {"kind": "ServiceAccount", "name": "robot"}

BINDINGS = (
    bind("a", "Role/editor", JANE, namespace="shop"),
    bind("b", "Role/editor", DEV, ROBOT, namespace="bank"),
    bind("c", "ClusterRole/view", JANE, namespace="shop"),
    bind("d", "ClusterRole/admin", DEV),
    bind("e", "ClusterRole/watcher", ROBOT),
    bind("f", "ClusterRole/nobody"),
    bind("g", "Role/near", NEAR_ROBOT, namespace="shop"),
    bind("h", "ClusterRole/far", NEAR_ROBOT),
    bind("i", "Odd/kind", JANE),
)


@pytest.fixture
def book() -> RoleCache:
    book = RoleCache(Client(ClusterConfig("http://127.0.0.1:1")))
    for binding in BINDINGS:
        book._take(Change(ChangeType.ADDED, binding))
    return book


@pytest.mark.parametrize(
    ("caller", "namespace", "expected"),
    [
        (Caller("nobody"), "shop", ((), ())),
        (Caller("jane"), "shop", (("shop:editor",), ("view",))),
        # A ClusterRole that a RoleBinding gives counts in its namespace only.
        (Caller("jane"), "bank", (("shop:editor",), ())),
        (Caller("jane"), "", (("shop:editor",), ())),
        (Caller("jane", groups=("dev", "x")), "shop", (("bank:editor", "shop:editor"), ("admin", "view"))),
        (
            Caller("system:serviceaccount:shop:robot"),
            "",
            (("bank:editor", "shop:near"), ("watcher",)),
        ),
        (Caller("system:serviceaccount:bank:robot"), "", ((), ())),
        (Caller("dev"), "", ((), ())),
    ],
)  # fmt: skip
def test_roles(book, caller, namespace, expected):
    assert book.roles_of(caller, namespace) == expected
    assert book.roles_of(caller, namespace) == expected


def test_follows_changes(book):
    jane = Caller("jane")
    assert book.roles_of(jane, "shop") == (("shop:editor",), ("view",))
    before = BINDINGS[0]
    after = bind("a", "Role/editor", DEV, namespace="shop")
    book._take(Change(ChangeType.MODIFIED, after, before))
    assert book.roles_of(jane, "shop") == ((), ("view",))
    assert book.roles_of(Caller("x", groups=("dev",))) == (
        ("bank:editor", "shop:editor"),
        ("admin",),
    )
    book._take(Change(ChangeType.DELETED, BINDINGS[2]))
    assert book.roles_of(jane, "shop") == ((), ())


def test_two_bindings_of_one_role(book):
    twice = bind("z", "Role/editor", JANE, namespace="shop")
    book._take(Change(ChangeType.ADDED, twice))
    assert book.roles_of(Caller("jane"), "") == (("shop:editor",), ())
    book._take(Change(ChangeType.DELETED, twice))
    assert book.roles_of(Caller("jane"), "") == (("shop:editor",), ())


def test_everything_is_forgotten_with_its_last_binding(book):
    for binding in BINDINGS:
        book._take(Change(ChangeType.DELETED, binding))
    assert (book._users, book._groups) == ({}, {})
