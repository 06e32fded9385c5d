"""What `lint` finds in expressions that compile."""

import pytest

from lictor.core.facts.schemas import find_form
from lictor.core.lang.cel.expression import NO_VARIABLES, _check_tree, declare_variable
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.lint.cel_inspection import inspect_expression

ENVIRONMENT = kubernetes_environment()
FORMS = {"object": find_form("v1", "Pod")}


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("object.spec.contaners.size() > 0", "undefined field 'contaners'", ".contaners"),
        ("object.metadta.name == 'x'", "undefined field 'metadta'", ".metadta"),
        ("object.spec.containers.all(c, c.imge != '')", "undefined field 'imge'", ".imge"),
        ("object.spec.containers.exists(c, has(c.securityContxt))", "undefined field 'securityContxt'", ".securityContxt"),
        ("object.?spec.?hostNetwrk.orValue(false)", "undefined field 'hostNetwrk'", ".?hostNetwrk"),
        ("object['spec']['nope'] == 1", "undefined field 'nope'", "['nope']"),
        ("object.spec.containers[0].nme == 'x'", "undefined field 'nme'", ".nme"),
        ("object.spec.volumes.map(v, v.nme)", "undefined field 'nme'", ".nme"),
        ("object.spec.containers.exists(i, c, c.nme == '')", "undefined field 'nme'", ".nme"),
        ("object.spec.?initContainers.orValue([]).all(c, c.bad == 1)", "undefined field 'bad'", ".bad"),
        ("(object.spec.containers + object.spec.initContainers).all(c, c.bad == 1)", "undefined field 'bad'", ".bad"),
        ("request.operaton == 'CREATE'", "undefined field 'operaton'", ".operaton"),
        ("request.userInfo.nme == ''", "undefined field 'nme'", ".nme"),
        ("namespaceObject.metadata.lables == {}", "undefined field 'lables'", ".lables"),
    ],
)  # fmt: skip
def test_doubtful_parts_are_found(text, message, place):
    findings = inspect_expression(text, ENVIRONMENT, forms=FORMS).findings
    assert [finding.message for finding in findings] == [message]
    assert text[findings[0].position :].startswith(place)


@pytest.mark.parametrize(
    "text",
    [
        "object.metadata.labels['app'] == 'x'",
        "object.metadata.labels.app == 'x'",
        "object.metadata.?annotations[?'a/b'].orValue('') == ''",
        "object.spec.containers.all(c, c.resources.limits.cpu == '1')",
        "object.spec.nodeSelector.all(k, v, v == 'x')",
        "object.spec.containers.all(c, c.ports.all(p, p.containerPort > 1024))",
        "request.userInfo.extra['x'][0] == 'y'",
        "request.object.spec.anything == 1",
        "oldObject.spec.anything == 1",
        "params.anything == 1",
        "'%s %d'.format(['a', 1]) == ''",
        "'x'.matches('^[a-z]+$') && 'x'.matches(object.metadata.name)",
        "timestamp('2024-02-29T00:00:00Z') > timestamp(object.metadata.creationTimestamp)",
        "duration('1h30m') > duration('1s')",
    ],
)
def test_what_is_fine_is_left_alone(text):
    assert inspect_expression(text, ENVIRONMENT, forms=FORMS).findings == ()


def test_variables_carry_their_form():
    known = declare_variable(NO_VARIABLES, "all", "object.spec.containers", ENVIRONMENT)
    form = inspect_expression("object.spec.containers", ENVIRONMENT, forms=FORMS).form
    found = inspect_expression(
        "variables.all.exists(c, c.imge == '')",
        ENVIRONMENT,
        known,
        {**FORMS, "variables.all": form},
    ).findings
    assert [(finding.message, finding.position) for finding in found] == [
        ("undefined field 'imge'", 25)
    ]


def test_nothing_is_said_of_kinds_nobody_knows():
    assert inspect_expression("object.spec.whatever == 1", ENVIRONMENT).findings == ()


def test_an_expression_is_compiled_once_for_all_kinds() -> None:
    text = "object.spec.containers.all(each, each.name != 'compiled-once')"
    before = _check_tree.cache_info().misses
    for _ in range(3):
        for forms in ({}, FORMS, {"object": FORMS["object"]}):
            inspect_expression(text, ENVIRONMENT, forms=forms)
    assert _check_tree.cache_info().misses == before + 1
