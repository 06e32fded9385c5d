"""The file of notifications: what is read, and what is refused, with its line."""

from pathlib import Path

import pytest

from lictor.addons.web.notifications.settings import (
    SecretKeyReference,
    SecretSource,
    load_notifications,
    parse_notifications,
)
from lictor.core.errors import LoadError

SLACK = "  slack: {urlFrom: {secretKeyRef: {name: chat, key: url}}}"


def target(lines: str, name: str = "chat") -> bytes:
    return f"targets:\n- name: {name}\n{lines}\n".encode()


def test_all_kinds_of_targets(tmp_path: Path) -> None:
    path = tmp_path / "notifications.yaml"
    path.write_text(
        """
pageUrl: https://lictor.example.com
repeatAfter: 30m
targets:
- name: siem
  webhook:
    url: https://events.example.com/hooks
    headersFrom:
      Authorization: {secretKeyRef: {name: siem, key: header}}
  filter: {statuses: [fail, error, warn], minimumSeverity: medium, namespaces: ["team-*"]}
- name: chat
  slack: {urlFrom: {secretKeyRef: {name: chat, key: url}}}
  maxPerMinute: 6
- name: office
  teams: {urlFrom: {file: /secrets/teams}}
"""
    )
    settings = load_notifications(path)
    assert [target.name for target in settings.targets] == ["siem", "chat", "office"]
    assert settings.repeat_after == "30m"
    slack = settings.targets[1].slack
    assert slack is not None
    assert slack.url_from == SecretSource(SecretKeyReference("chat", "url"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"targets: []\n", "file:1:1: targets: name at least one target"),
        (b"", "expected one document"),
        (b"targets: 3\n", "file:1:1: targets: expected a list"),
        (b"targets: []\ntargets: []\n", 'key "targets" stands twice'),
        (b"targest: []\n", 'did you mean "targets"'),
        (target("  slack: {}"), 'required field "urlFrom" is missing'),
        (target("  slack: {url: https://hooks.example.com/x}"), 'unknown field "url"'),
        (target(""), "exactly one of webhook, slack and teams"),
        (target(f"{SLACK}\n  webhook: {{url: https://a.example.com}}"), "exactly one of"),
        (target(SLACK, "Chat_1"), "file:2:3: targets[0].name: must be 1 to 40"),
        (target(f"{SLACK}\n- name: chat\n{SLACK}"), 'another target is named "chat" too'),
        (target(f"{SLACK}\n  maxPerMinute: 0"), "maxPerMinute: must be from 1 to 10000"),
        (target(f"{SLACK}\n  batchWait: soon"), '"soon" is no length of time'),
        (target(f"{SLACK}\n  filter: {{statuses: []}}"), "name at least one of fail"),
        (target(f"{SLACK}\n  filter: {{statuses: [failed]}}"), 'did you mean "fail"'),
        (target("  slack: {urlFrom: {}}"), "either secretKeyRef or file"),
        (target("  webhook: {}"), "either url or urlFrom"),
        (target("  webhook: {url: ftp://a.example.com}"), "must begin with https://"),
        (target("  webhook: {url: 'https://me:word@a.example.com'}"), "no user or password"),
        (target("  webhook: {url: 'https://a.example.com:port/'}"), "is no URL"),
        (
            target("  webhook: {url: https://a.example.com, headers: {Authorization: Bearer x}}"),
            "holds a secret: name a Secret in headersFrom",
        ),
        (
            target("  webhook: {url: https://a.example.com, headers: {Host: b}}"),
            "is no header that can be set here",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: bytes, message: str) -> None:
    with pytest.raises(LoadError) as refused:
        parse_notifications(text, "file")
    assert message in str(refused.value)
    # A password that stands where it should not is not repeated.
    assert "word@" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file"):
        load_notifications(tmp_path / "nothing.yaml")
