"""Flags of the controllers, written as people write them for Kyverno."""

import json
import logging

import click
import msgspec
import pytest
from click.testing import CliRunner

from lictor.cli.controller_flags import WORDS, ControllerCommand, with_flags
from lictor.cli.logs import set_up_logging
from lictor.kubernetes.flags import IGNORED, Flags
from lictor.kubernetes.process_log import FactLine, FactRecord, log_facts


def parse(*words, env=None):
    """What a command gets: its flags, its names, its arguments; or what it says."""
    given = {}

    @click.command(cls=ControllerCommand, arity=(0, None))
    @click.option("--workers", type=int, default=1)
    @with_flags
    def command(**everything):
        given.update(everything)

    done = CliRunner().invoke(command, list(words), env={"POD_NAMESPACE": "", **(env or {})})
    return given, done


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ([], "webhook_timeout", 10),
        (["--webhookTimeout=15"], "webhook_timeout", 15),
        (["--webhookTimeout", "15"], "webhook_timeout", 15),
        (["-webhookTimeout=15"], "webhook_timeout", 15),
        (["-webhookTimeout", "15"], "webhook_timeout", 15),
        (["--enablePolicyException"], "enable_policy_exception", True),
        (["--enablePolicyException=true"], "enable_policy_exception", True),
        (["-enablePolicyException=1"], "enable_policy_exception", True),
        (["--autoUpdateWebhooks=false"], "auto_update_webhooks", False),
        (["--autoUpdateWebhooks=F"], "auto_update_webhooks", False),
        (["--autoUpdateWebhooks"], "auto_update_webhooks", True),
        ([], "auto_update_webhooks", True),
        (["-v=4"], "v", 4),
        (["-v", "4"], "v", 4),
        (["--v=4"], "v", 4),
        (["--renewBefore=24h"], "renew_before", "24h"),
        (["--tlsKeyAlgorithm=ed25519"], "tls_key_algorithm", "Ed25519"),
        (["--allowHTTPInNamespacedPolicies=true"], "allow_http_in_namespaced_policies", True),
        (["--serverIP=10.0.0.1:9443"], "server_ip", "10.0.0.1:9443"),
        (
            ["--omitEvents=PolicyApplied,PolicySkipped"],
            "omit_events",
            "PolicyApplied,PolicySkipped",
        ),
        (["--eventsRateLimitQPS=50"], "events_rate_limit_qps", 50),
        (["--imagePullSecrets=a,b"], "image_pull_secrets", "a,b"),
        (["--registryCA=/ca.pem"], "registry_ca", "/ca.pem"),
        (["--exceptionNamespace", ""], "exception_namespace", ""),
    ],
)
def test_values(words, field, value):
    given, done = parse(*words)
    assert done.exit_code == 0, done.output
    assert getattr(given["flags"], field) == value
    others = msgspec.structs.replace(given["flags"], **{field: getattr(Flags(), field)})
    assert others == Flags(), "nothing else changes"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--noSuchFlag=1"], "--noSuchFlag"),
        (["--webhookTimeout=soon"], "soon"),
        (["--webhookTimeout=-1"], "-1"),
        (["--renewBefore=15d"], "write a duration such as 30s or 15m"),
        (["--renewBefore=-1h"], "write a duration"),
        (["--tlsKeyAlgorithm=DSA"], "DSA"),
        (["--loggingFormat=xml"], "xml"),
        (["--autoUpdateWebhooks=perhaps"], "write true or false"),
        (["--webhookTimeout"], "requires an argument"),
    ],
)
def test_wrong_values_are_refused(words, said):
    given, done = parse(*words)
    assert done.exit_code != 0
    assert said in done.output
    assert given == {}


@pytest.mark.parametrize(
    "words",
    [
        ["--backgroundScanWorkers=2"],
        ["--backgroundScanWorkers", "2"],
        ["-crdWatcher"],
        ["--crdWatcher=true"],
        ["--otelConfig=prometheus"],
        ["--alsologtostderr"],
    ],
)
def test_flags_without_a_meaning_are_told(words):
    given, done = parse(*words, "one", "--webhookTimeout=3")
    assert done.exit_code == 0, done.output
    assert "is accepted but has no effect" in done.stderr
    assert given["flags"].webhook_timeout == 3
    assert given["arguments"] == ("one",)


def test_a_commands_own_options_and_arguments_stay():
    given, done = parse("a", "--workers=4", "--webhookTimeout", "3", "b")
    assert done.exit_code == 0, done.output
    assert given["workers"] == 4
    assert given["arguments"] == ("a", "b")


def test_nothing_is_read_behind_two_dashes():
    given, _ = parse("--", "--webhookTimeout=3")
    assert given["arguments"] == ("--webhookTimeout=3",)
    assert given["flags"] == Flags()


def test_names():
    given, _ = parse()
    assert (given["names"].prefix, given["names"].namespace) == ("lictor", "lictor")
    given, _ = parse("--prefix", "kyverno", "--namespace=kyverno")
    assert (given["names"].prefix, given["names"].namespace) == ("kyverno", "kyverno")
    given, _ = parse(env={"POD_NAMESPACE": "policies"})
    assert given["names"].namespace == "policies"


def test_every_flag_has_words_and_none_is_both():
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(Flags)}
    assert set(WORDS) == set(fields)
    assert not set(IGNORED) & set(fields.values())


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (Flags(), " INFO controllers.x it happened count=3 why='a b'"),
        (Flags(logging_format="json"), '"msg":"it happened","count":3,"why":"a b"'),
    ],
    ids=["text", "json"],
)
def test_log_lines(root_logger, capsys, flags, line):
    set_up_logging(flags)
    log = logging.getLogger("lictor.controllers.x")
    log.debug("not shown")
    log.info("it happened", extra={"count": 3, "why": "a b"})
    said = capsys.readouterr().err
    assert line in said
    assert "not shown" not in said
    set_up_logging(Flags(v=4))
    log.debug("shown")
    assert "shown" in capsys.readouterr().err


def _log_extra(log, level, message, facts):
    log.log(level, message, extra=facts)


def _log_record(log, level, message, facts):
    log.handle(FactRecord(log.name, level, message, facts))


def _log_line(log, level, message, facts):
    log_facts(log, level, FactLine(message, *facts), *facts.values())


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"a": "x", "b": 1, "c": True}, "it happened a=x b=1 c=True"),
        ({"a": "", "b": "x"}, "it happened a='' b=x"),
        ({"a": "x", "b": ""}, "it happened a=x b=''"),
        ({"a": "x y", "b": "z"}, "it happened a='x y' b=z"),
        ({"a": "x=", "b": "y"}, "it happened a=x= b=y"),
        ({"a": "x\nINFO forged"}, "it happened a='x\\nINFO forged'"),
    ],
)
@pytest.mark.parametrize("way", [_log_extra, _log_record, _log_line])
def test_facts_of_log_lines(root_logger, capfd, facts, line, way):
    set_up_logging(Flags())
    way(logging.getLogger("lictor.webhook.x"), logging.INFO, "it happened", facts)
    assert capfd.readouterr().err.endswith(f" INFO webhook.x {line}\n")


@pytest.mark.parametrize("way", [_log_extra, _log_record, _log_line])
def test_facts_of_json_lines(root_logger, capfd, way):
    set_up_logging(Flags(logging_format="json"))
    facts = {"uid": "u-1", "ms": 0.25, "odd": "a b"}
    way(logging.getLogger("lictor.webhook.x"), logging.WARNING, "it happened", facts)
    said = json.loads(capfd.readouterr().err)
    assert said.pop("ts").endswith("Z")
    assert said == {"level": "warning", "logger": "lictor.webhook.x", "msg": "it happened", **facts}


def test_facts_are_told_to_every_handler(root_logger, capfd, caplog):
    set_up_logging(Flags())
    log = logging.getLogger("lictor.webhook.x")
    # Its formatter wants to know from which line of code a record came.
    root_logger.addHandler(caplog.handler)
    _log_line(log, logging.INFO, "it happened", {"uid": "u-1"})
    assert capfd.readouterr().err.endswith("it happened uid=u-1\n")
    [record] = caplog.records
    assert (record.getMessage(), record.uid) == ("it happened", "u-1")
