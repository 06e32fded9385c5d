"""What policies may create by POST."""

import pytest

from lictor.core.errors import LookupFailedError, UsageError
from lictor.kubernetes.flags import Flags
from lictor.lookups.lookups import name_resource, read_post_rules

AUTHORIZATION = "/apis/authorization.k8s.io/v1"


@pytest.mark.parametrize(
    "path",
    [
        f"{AUTHORIZATION}/subjectaccessreviews",
        f"{AUTHORIZATION}/subjectaccessreviews?dryRun=All",
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        f"{AUTHORIZATION}/selfsubjectrulesreviews",
        f"{AUTHORIZATION}/namespaces/red/localsubjectaccessreviews",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/authentication.k8s.io/v1beta1/selfsubjectreviews",
    ],
)
def test_questions_are_always_allowed(path):
    read_post_rules(Flags()).check(path, "at all")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/red/configmaps",
        "/api/v1/namespaces/red/pods/web/eviction",
        "/api/v1/namespaces/lictor/serviceaccounts/lictor-background-controller/token",
        "/apis/apps/v1/namespaces/red/deployments",
        # Almost a question.
        "/apis/authorization.k8s.io/v1/subjectaccessreviews/../../../../api/v1/namespaces/red/pods",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews/x/y",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews%2f..%2f..",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews#",
        "/apis/authorization.k8s.io.evil.example/v1/subjectaccessreviews",
        "//apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews/",
        "https://elsewhere/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/api/v1/subjectaccessreviews.authorization.k8s.io",
        "",
    ],
)
def test_nothing_is_created(path):
    with pytest.raises(LookupFailedError, match="POST is for access reviews"):
        read_post_rules(Flags()).check(path, "")


def test_what_is_allowed():
    rules = read_post_rules(Flags(allow_post_resources=" configmaps, jobs.batch,pods/eviction"))
    rules.check("/api/v1/namespaces/red/configmaps", "")
    rules.check("/apis/batch/v1/namespaces/red/jobs", "")
    rules.check("/api/v1/namespaces/red/pods/web/eviction", "")
    with pytest.raises(LookupFailedError, match="may not create configmaps on a dry run"):
        rules.check("/api/v1/namespaces/red/configmaps", "on a dry run")
    for path in (
        "/api/v1/namespaces/red/jobs",
        "/apis/ex.io/v1/namespaces/red/configmaps",
        "/api/v1/namespaces/red/pods",
        "/api/v1/namespaces/red/configmaps/../secrets",
    ):
        with pytest.raises(LookupFailedError, match="POST is for access reviews"):
            rules.check(path, "")


@pytest.mark.parametrize("text", ["ConfigMap", "v1/ConfigMap", "*", "jobs.batch/", "a b"])
def test_entries_that_cannot_be_meant(text):
    with pytest.raises(UsageError, match="--allowPostResources"):
        read_post_rules(Flags(allow_post_resources=text))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/pods", "pods"),
        ("/apis/batch/v1/namespaces/red/jobs?x=y", "jobs.batch"),
        ("/api/v1/namespaces/red/pods/web/eviction", "pods/eviction"),
        ("/version", ""),
        ("/api/v1/namespaces/%72ed/pods", ""),
    ],
)
def test_names(path, name):
    assert name_resource(path) == name
