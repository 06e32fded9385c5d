"""Objects in other versions of their kinds."""

from lictor.addons.apiserver.kinds.catalogue import build_catalogue

CATALOGUE = build_catalogue()


def convert(document, api_version):
    return CATALOGUE.convert(document, CATALOGUE.find_kind(api_version, document["kind"]))


def test_events_have_two_names_for_the_same():
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod"},
        "message": "m",
        "count": 2,
        "reason": "R",
    }

    new = convert(event, "events.k8s.io/v1")

    assert new["regarding"] == {"kind": "Pod"}
    assert (new["note"], new["deprecatedCount"], new["reason"]) == ("m", 2, "R")
    assert convert(new, "v1") == event


def test_older_autoscalers_know_one_metric():
    newer = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 70},
                    },
                }
            ],
        },
        "status": {"desiredReplicas": 1, "currentReplicas": 1},
    }

    older = convert(newer, "autoscaling/v1")

    assert older["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}
    assert convert(older, "autoscaling/v2") == newer


def test_other_kinds_differ_in_their_version_only():
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1beta1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "a"},
    }

    other = convert(policy, "admissionregistration.k8s.io/v1alpha1")

    assert other == {**policy, "apiVersion": "admissionregistration.k8s.io/v1alpha1"}
    assert convert(policy, policy["apiVersion"]) is policy
