"""The page in an installation: only where it is wanted, with few rights, and as careful as others."""

import pytest

from lictor.install.build import build_manifests
from lictor.install.installation import Installation

LABEL = "app.kubernetes.io/component"


def build(**more):
    made = build_manifests(Installation(version="1.0", skip_crds=True, **more))
    return [each for each in made if each["metadata"]["labels"][LABEL] == "web"]


def find(kind, **more):
    [found] = [each for each in build(web=True, **more) if each["kind"] == kind]
    return found


def test_there_is_no_page_unless_it_is_wanted():
    assert build() == []
    assert {each["kind"] for each in build(web=True)} == {
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service",
        "NetworkPolicy", "Deployment",
    }  # fmt: skip


def test_the_page_reads_and_asks_and_does_nothing_else():
    reading, asking = {"get", "list", "watch"}, {"create"}
    for rule in find("ClusterRole")["rules"]:
        is_question = rule["resources"] in (["tokenreviews"], ["subjectaccessreviews"])
        assert set(rule["verbs"]) == (asking if is_question else reading), rule
        assert not set(rule["resources"]) & {"*", "secrets", "configmaps", "pods"}
        assert "*" not in rule["apiGroups"]
    assert find("Role")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch"],
            "resourceNames": ["lictor-web-boards"],
        }
    ]


@pytest.mark.parametrize(("names", "granted"), [([], []), (["slack", "siem"], [["slack", "siem"]])])
def test_secrets_of_notifications_are_read_one_by_one(names, granted):
    settings = {"configMapName": "told", "secretNames": names}
    role = find("Role", values={"web": {"notifications": settings}})
    secrets = [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    assert [rule["resourceNames"] for rule in secrets] == granted
    assert all(rule["verbs"] == ["get"] for rule in secrets)


def test_the_page_leads_by_its_own_lease_only():
    settings = {"configMapName": "told"}
    rules = find("Role", values={"web": {"notifications": settings}})["rules"]
    leases = [
        (rule["verbs"], rule.get("resourceNames"))
        for rule in rules
        if "leases" in rule["resources"]
    ]
    assert leases == [
        (["create"], None),
        (["get", "update", "patch"], ["lictor-web-notifications"]),
    ]


def test_how_the_page_is_started():
    values = {"web": {"tlsSecretName": "cert", "extraArgs": ["--base=/lictor"]}}
    pod = find("Deployment", web_hosts=("a.example", "b.example"), values=values)
    [container] = pod["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "web", "--login", "--address=", "--port=8443", "--metrics-port=8000",
        "--namespace=lictor", "--prefix=lictor", "--host=a.example,b.example",
        "--tls-cert=/etc/lictor/tls/tls.crt", "--tls-key=/etc/lictor/tls/tls.key",
        "--base=/lictor",
    ]  # fmt: skip
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"name": "tls", "secret": {"secretName": "cert"}} in (
        pod["spec"]["template"]["spec"]["volumes"]
    )
