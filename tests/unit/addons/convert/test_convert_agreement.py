"""Both forms of a policy say the same of hundreds of requests made from it."""

import pytest
from converting import build_policy, compare, convert, convert_alike

from lictor.addons.convert.conversion import ConversionTarget


def pattern(body):
    return {"validate": {"message": "no", "pattern": body}}


def containers(body):
    return pattern({"spec": {"containers": [body]}})


def deny(*conditions, **rule):
    return {
        "validate": {"message": "no", "deny": {"conditions": {"any": list(conditions)}}},
        **rule,
    }


def condition(key, operator, value):
    return {"key": key, "operator": operator, "value": value}


YES = {"operator": "Equals", "value": True}


def foreach(listed, **body):
    return {"validate": {"message": "no", "foreach": [{"list": listed, **body}]}}


NOT_DELETE = {
    "preconditions": {
        "all": [condition("{{ request.operation || 'BACKGROUND' }}", "NotEquals", "DELETE")]
    }
}
ALL_CONTAINERS = "request.object.spec.[initContainers, containers][]"
IMAGE = "request.object.spec.containers[].image"
RULES = {
    "boolean": pattern({"spec": {"=(hostPID)": "false"}}),
    "required boolean": pattern({"spec": {"hostPID": False}}),
    "text with wildcards": containers({"image": "*:*"}),
    "negated wildcard": containers({"image": "!*:latest"}),
    "alternatives": containers({"image": "reg.io/* | ghcr.io/*"}),
    "both": containers({"image": "!*:latest & reg.io/*"}),
    "words": containers({"=(imagePullPolicy)": "Always | Never"}),
    "number": pattern({"spec": {"=(priority)": ">5"}}),
    "range": pattern({"spec": {"priority": "5-10"}}),
    "outside of a range": pattern({"spec": {"=(priority)": "5!-10"}}),
    "quantity": containers({"=(resources)": {"=(limits)": {"=(memory)": "<=1Gi"}}}),
    "duration or quantity": containers({"=(resources)": {"=(limits)": {"=(cpu)": "<=500m"}}}),
    "null": pattern({"spec": {"nodeName": None}}),
    "anything": pattern({"metadata": {"labels": {"team": "*"}}}),
    "something": pattern({"metadata": {"labels": {"team": "?*"}}}),
    "forbidden": pattern({"spec": {"X(hostNetwork)": "null"}}),
    "forbidden in lists": pattern({"spec": {"=(volumes)": [{"X(hostPath)": "null"}]}}),
    "condition": containers({"(image)": "*:latest", "imagePullPolicy": "Always"}),
    "global condition": pattern(
        {"metadata": {"=(labels)": {"<(app)": "web"}}, "spec": {"hostNetwork": False}}
    ),
    "existence": pattern({"spec": {"^(containers)": [{"image": "reg.io/*"}]}}),
    "nested lists": containers({"=(ports)": [{"=(hostPort)": 0}]}),
    "wildcard in a key": pattern({"metadata": {"=(annotations)": {"=(corp/*)": "a | b"}}}),
    "forbidden wildcard key": pattern({"metadata": {"=(annotations)": {"X(corp/*)": "null"}}}),
    "list of texts": containers({"=(command)": ["/bin/*"]}),
    "reference": containers(
        {
            "resources": {
                "requests": {"memory": "1Gi"},
                "limits": {"memory": "$(./../../requests/memory)"},
            }
        }
    ),
    "some of several": {
        "validate": {
            "message": "no",
            "anyPattern": [
                {"spec": {"securityContext": {"runAsNonRoot": True}}},
                {"spec": {"containers": [{"securityContext": {"runAsNonRoot": True}}]}},
            ],
        }
    },
    "deny by operation": deny(condition("{{request.operation}}", "AnyIn", ["UPDATE", "DELETE"])),
    "deny by label": deny(
        condition("{{ request.object.metadata.labels.team || '' }}", "NotEquals", "red")
    ),
    "deny by another default": deny(
        condition("{{ request.object.metadata.labels.team || 'none' }}", "Equals", "none")
    ),
    "deny without default": deny(condition("{{request.object.spec.nodeName}}", "Equals", "one")),
    "deny by wildcards": deny(condition(f"{{{{ {IMAGE} }}}}", "AnyIn", ["bad/*", "*:latest"])),
    "all of them": deny(condition(f"{{{{ {IMAGE} }}}}", "AllNotIn", ["reg.io/a", "reg.io/b"])),
    "not all of them": deny(condition(f"{{{{ {IMAGE} }}}}", "AllIn", ["reg.io/a"])),
    "keys": deny(condition("hostPath", "AnyIn", "{{ request.object.spec.volumes[].keys(@)[] }}")),
    "length": deny(condition(f"{{{{ length({IMAGE}) }}}}", "GreaterThan", 1)),
    "length with a default": deny(
        condition("{{ request.object.spec.volumes[] || `[]` | length(@) }}", "GreaterThan", 0)
    ),
    "nested length": deny(
        condition(
            "{{ request.object.spec.containers[].ports[].hostPort | length(@) }}", "Equals", 2
        ),
        **NOT_DELETE,
    ),
    "filter": deny(
        condition(
            "{{ request.object.spec.containers[?name == 'main'].image || `[]` | length(@) }}",
            "Equals",
            0,
        )
    ),
    "contains": deny({"key": "{{ contains(request.object.metadata.name, 'sam') }}", **YES}),
    "regular expression": deny(
        {
            "key": "{{ regex_match('^v[0-9]$', '{{request.object.metadata.labels.v || 'x'}}') }}",
            **YES,
        }
    ),
    "number with a default": deny(
        condition("{{ request.object.spec.priority || `1` }}", "GreaterThan", 0), **NOT_DELETE
    ),
    "projected range": deny(
        condition("{{ request.object.spec.containers[].ports[].hostPort }}", "AnyNotIn", "5-10")
    ),
    "first element": deny(
        condition("{{ request.object.metadata.ownerReferences[0].kind || '' }}", "NotEquals", "Job")
    ),
    "foreach with pattern": foreach("request.object.spec.containers", pattern={"image": "*:*"}),
    "foreach with deny": foreach(
        ALL_CONTAINERS,
        deny={
            "conditions": {
                "all": [
                    condition(
                        "ALL",
                        "AnyNotIn",
                        "{{ element.securityContext.capabilities.drop[].to_upper(@) || `[]` }}",
                    )
                ]
            }
        },
    ),
    "foreach with preconditions": foreach(
        "request.object.spec.containers",
        preconditions={"all": [condition("{{ element.name }}", "Equals", "c*")]},
        pattern={"image": "reg.io/*"},
    ),
    "variables of the context": {
        **deny(condition("{{ team }}", "Equals", "red")),
        "context": [
            {
                "name": "team",
                "variable": {"jmesPath": "request.object.metadata.labels.team", "default": "none"},
            }
        ],
    },
    "a name in a pattern": pattern(
        {"metadata": {"labels": {"app": "{{request.object.metadata.name}}"}}}
    ),
}


@pytest.mark.parametrize(
    "target", [ConversionTarget.VALIDATING, ConversionTarget.ADMISSION], ids=str
)
@pytest.mark.parametrize("name", RULES)
def test_rules_about_pods(name, target):
    policy = build_policy(RULES[name])
    _, comparison = convert_alike(policy, target)
    assert comparison.differences == ()
    assert comparison.evaluated > 20


@pytest.mark.parametrize("name", ["boolean", "condition", "deny by label", "foreach with deny"])
def test_rules_that_forgive_what_was_bad_before(name):
    policy = build_policy(RULES[name], validationFailureAction="Enforce")
    _, comparison = convert_alike(policy)
    assert comparison.differences == ()
    assert comparison.refused > 0


FILTERS = {
    "names": {"match": {"any": [{"resources": {"kinds": ["Pod"], "names": ["a*", "b"]}}]}},
    "namespaces": {"match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["prod-*"]}}]}},
    "labels": {
        "match": {
            "any": [
                {
                    "resources": {
                        "kinds": ["Pod"],
                        "selector": {
                            "matchLabels": {"app": "web", "tier/*": "?*"},
                            "matchExpressions": [
                                {"key": "env", "operator": "NotIn", "values": ["dev"]}
                            ],
                        },
                    }
                }
            ]
        }
    },
    "annotations": {
        "match": {"any": [{"resources": {"kinds": ["Pod"], "annotations": {"a/*": "x*"}}}]}
    },
    "labels of the namespace": {
        "match": {
            "any": [
                {
                    "resources": {
                        "kinds": ["Pod"],
                        "namespaceSelector": {"matchLabels": {"env": "prod"}},
                    }
                }
            ]
        }
    },
    "several kinds": {
        "match": {
            "any": [
                {"resources": {"kinds": ["Service"], "names": ["web"]}},
                {"resources": {"kinds": ["ConfigMap"]}},
            ]
        }
    },
    "all of them": {
        "match": {
            "all": [{"resources": {"kinds": ["Pod"]}}, {"resources": {"names": ["a"]}}],
        }
    },
    "subjects": {
        "match": {
            "any": [
                {
                    "resources": {"kinds": ["Pod"]},
                    "subjects": [
                        {"kind": "User", "name": "bob*"},
                        {"kind": "Group", "name": "admins"},
                        {"kind": "ServiceAccount", "name": "robot", "namespace": "ci"},
                    ],
                }
            ]
        }
    },
    "excluded": {
        "exclude": {
            "any": [
                {"resources": {"namespaces": ["kube-*"]}},
                {"resources": {"kinds": ["Pod"], "names": ["a"]}},
                {"subjects": [{"kind": "User", "name": "bob"}]},
            ]
        }
    },
    "operations": {
        "match": {"any": [{"resources": {"kinds": ["Pod"], "operations": ["UPDATE", "DELETE"]}}]}
    },
    "the older form": {"match": {"resources": {"kinds": ["Pod"], "name": "a"}}},
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name):
    policy = build_policy({"validate": {"message": "no", "deny": {}}, **FILTERS[name]})
    _, comparison = convert_alike(policy)
    assert comparison.differences == ()
    assert comparison.refused > 0


ROLES = deny(
    condition(
        "{{ request.object.rules[?resources.contains(@, 'secrets')].verbs[] }}", "AnyIn", ["get"]
    )
)


def test_roles_name_everything_by_a_star():
    policy = build_policy(ROLES, kinds=("Role", "ClusterRole"))
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "all", "namespace": "default"},
    }
    resources = [
        {**role, "rules": None},
        {**role, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]},
    ]
    _, comparison = convert_alike(policy, resources=resources)
    assert comparison.differences == ()
    assert comparison.refused > 0


MUTATIONS = {
    "label": {"patchStrategicMerge": {"metadata": {"labels": {"team": "red"}}}},
    "addition": {"patchStrategicMerge": {"metadata": {"annotations": {"+(a.b/c)": "x"}}}},
    "addition in a struct": {
        "patchStrategicMerge": {"spec": {"securityContext": {"+(runAsUser)": 5}}}
    },
    "gate": {
        "patchStrategicMerge": {
            "metadata": {"annotations": {"+(safe)": "true"}},
            "spec": {"volumes": [{"<(emptyDir)": {}}]},
        }
    },
    "condition": {
        "patchStrategicMerge": {
            "metadata": {"(labels)": {"app": "web"}, "annotations": {"seen": "yes"}}
        }
    },
    "map that is replaced": {"patchStrategicMerge": {"spec": {"nodeSelector": {"disk": "fast"}}}},
    "list that is replaced": {
        "patchStrategicMerge": {
            "spec": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}}
        }
    },
    "list that is merged": {
        "patchStrategicMerge": {"spec": {"imagePullSecrets": [{"name": "key"}]}}
    },
    "each container": {
        "patchStrategicMerge": {
            "spec": {"containers": [{"(name)": "*", "imagePullPolicy": "Always"}]}
        }
    },
    "a list in each container": {
        "patchStrategicMerge": {
            "spec": {"containers": [{"(name)": "*", "env": [{"name": "A", "value": "1"}]}]}
        }
    },
    "sidecar": {
        "patchStrategicMerge": {
            "spec": {
                "containers": [{"name": "agent", "image": "agent:1"}],
                "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
            }
        }
    },
    "json patch": {
        "patchesJson6902": """
        - {op: add, path: /metadata/annotations/a~1b, value: x}
        - {op: remove, path: /spec/nodeName}
        - {op: add, path: /spec/tolerations/-, value: {key: a, operator: Exists}}
        """
    },
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations(name):
    policy = build_policy({"mutate": MUTATIONS[name]})
    _, comparison = convert_alike(policy)
    assert comparison.differences == ()


GENERATIONS = {
    "data": {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "name": "deny-{{request.object.metadata.name}}",
        "namespace": "{{request.object.metadata.name}}",
        "synchronize": True,
        "data": {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "n": [1, "a", {"b": 2}]}},
    },
    "copy": {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "regcred",
        "namespace": "{{request.object.metadata.name}}",
        "clone": {"namespace": "default", "name": "regcred"},
    },
    "copies": {
        "namespace": "{{request.object.metadata.name}}",
        "cloneList": {"namespace": "default", "kinds": ["v1/Secret", "v1/ConfigMap"]},
    },
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_generations(name):
    policy = build_policy({"generate": GENERATIONS[name]}, kinds=("Namespace",))
    (document,) = convert(policy).documents
    assert document["kind"] == "GeneratingPolicy"
    comparison = compare(policy, [document])
    assert comparison.differences == ()
