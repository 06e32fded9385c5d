"""What targets are sent: the shapes they document, whatever strangers write into reports."""

from datetime import UTC, datetime

import pytest
from notification_server import make_result

from lictor.addons.web.notifications.messages import (
    SHOWN_IN_CHAT,
    NotificationBatch,
    build_cloud_event,
    build_slack,
    build_teams,
    encode_json,
)
from lictor.addons.web.notifications.notifier import compile_filter
from lictor.addons.web.notifications.settings import NotificationFilter
from lictor.addons.web.records import ReportedResult
from lictor.core.raw import Json

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = (
    "<!channel> <https://evil.example|click> *x* `y` [a](https://b) \u202eabc\x00\n@here & ]]>"
)


def batch(*results: ReportedResult, left_out: int = 0) -> NotificationBatch:
    return NotificationBatch(results, NOW, left_out)


def hostile() -> ReportedResult:
    return make_result(
        HOSTILE, message=HOSTILE, policy=HOSTILE, rule=HOSTILE, namespace=HOSTILE, kind=HOSTILE,
        source=HOSTILE, severity=HOSTILE, status="fail", cluster=HOSTILE, uid="",
        properties={HOSTILE: HOSTILE},
    )  # fmt: skip


def list_texts(value: Json, key: str = "text") -> list[str]:
    if isinstance(value, list):
        return [text for each in value for text in list_texts(each, key)]
    if not isinstance(value, dict):
        return []
    own = [value[key]] if isinstance(value.get(key), str) else []
    return own + [text for each in value.values() for text in list_texts(each, key)]


def test_a_cloud_event_has_what_the_specification_requires() -> None:
    event = build_cloud_event(make_result(), "https://lictor.example.com/")
    assert event["specversion"] == "1.0"
    assert event["source"] == "/lictor/clusters/prod"
    assert event["type"] == "io.lictor.result.fail"
    assert event["subject"] == "team-a/Pod/web"
    assert event["time"] == "2023-11-14T22:13:20Z"
    assert event["datacontenttype"] == "application/json"
    assert event["data"]["resource"]["name"] == "web"
    assert event["data"]["link"].startswith("https://lictor.example.com/results?")


def test_the_same_result_has_the_same_id_and_others_have_others() -> None:
    ids = [
        build_cloud_event(each)["id"]
        for each in (
            make_result(),
            make_result(position=7, report="other"),
            make_result(timestamp=1_700_000_001),
            make_result("api"),
            make_result(status="error"),
        )
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_an_event_without_a_time_has_none() -> None:
    assert "time" not in build_cloud_event(make_result(timestamp=0))


def test_strangers_make_no_links_or_mentions_in_slack() -> None:
    message = build_slack(batch(hostile()), "https://lictor.example.com")
    texts = list_texts(message)
    ours = [text for text in texts if text.startswith("<https://lictor.example.com/")]
    assert len(ours) == 1
    assert all("<" not in text and ">" not in text for text in texts if text not in ours)
    assert all(text.isprintable() for line in texts for text in line.split("\n"))
    sections = [each["text"] for each in message["blocks"] if each["type"] == "section"]
    assert all(each["verbatim"] for each in sections)


def test_strangers_text_is_no_markdown_in_teams() -> None:
    message = build_teams(batch(hostile()), "https://lictor.example.com")
    (attachment,) = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    # Only text blocks and facts read Markdown; there is none of them.
    assert set(list_texts(card["body"], "type")) == {"Container", "RichTextBlock", "TextRun"}
    assert all(text.isprintable() for text in list_texts(card["body"]))
    assert card["actions"][0]["url"].startswith("https://lictor.example.com/results")


def test_a_chat_names_the_worst_and_counts_the_others() -> None:
    many = [make_result(f"pod-{i}", severity="low") for i in range(40)]
    worst = make_result("worst", severity="critical")
    message = build_slack(batch(*many, worst, left_out=3))
    texts = list_texts(message["blocks"])
    assert message["text"] == "41 new policy violations in prod"
    assert "worst" in texts[1]
    assert len(message["blocks"]) == 1 + SHOWN_IN_CHAT + 1
    assert texts[-1].startswith("And 31 more: require-labels (31). 3 more exceeded the rate limit")


@pytest.mark.parametrize("build", [build_slack, build_teams])
def test_chat_messages_stay_within_limits(build: Json) -> None:
    long = [
        make_result("n" * 9000 + str(i), message="m" * 90_000, policy="p" * 9000 + str(i))
        for i in range(500)
    ]
    message = build(batch(*long))
    # Slack: 3,000 characters a section; Teams: 28 kB a message.
    assert all(len(text) <= 3000 for text in list_texts(message))
    assert len(encode_json(message)) < 28_000


def test_half_a_character_is_no_obstacle() -> None:
    broken = make_result("\ud800", message="\udfff", cluster="\udc00", policy="\ud800")
    page = "https://lictor.example.com"
    assert encode_json(build_cloud_event(broken, page))
    assert encode_json(build_slack(batch(broken), page))
    assert encode_json(build_teams(batch(broken), page))


@pytest.mark.parametrize(
    ("chosen", "parts", "told"),
    [
        (NotificationFilter(), {}, True),
        (NotificationFilter(), {"status": "error"}, True),
        (NotificationFilter(), {"status": "warn"}, False),
        (NotificationFilter(), {"status": "pass"}, False),
        (NotificationFilter(), {"severity": "weird"}, True),
        (NotificationFilter(statuses=("pass",)), {"status": "pass"}, True),
        (NotificationFilter(severities=("low",)), {}, False),
        (NotificationFilter(severities=("none",)), {"severity": ""}, True),
        (NotificationFilter(minimum_severity="high"), {"severity": "critical"}, True),
        (NotificationFilter(minimum_severity="high"), {"severity": "medium"}, False),
        (NotificationFilter(minimum_severity="high"), {"severity": ""}, False),
        (NotificationFilter(minimum_severity="none"), {"severity": ""}, True),
        (
            NotificationFilter(minimum_severity="high", severities=("high", "low")),
            {"severity": "critical"},
            False,
        ),
        (NotificationFilter(namespaces=("team-*",)), {}, True),
        (NotificationFilter(namespaces=("team-*",)), {"namespace": "infra"}, False),
        (NotificationFilter(namespaces=("team-*",)), {"namespace": ""}, False),
        (NotificationFilter(exclude_namespaces=("team-?",)), {}, False),
        (NotificationFilter(exclude_namespaces=("kube-*",)), {"namespace": ""}, True),
        (NotificationFilter(sources=("Trivy*",)), {}, False),
        (NotificationFilter(sources=("Trivy*", "kyverno")), {}, True),
        (NotificationFilter(clusters=("stage",)), {}, False),
        (NotificationFilter(policies=("require-*",), kinds=("Pod",)), {}, True),
        (NotificationFilter(policies=("require-*",), kinds=("Job",)), {}, False),
        (NotificationFilter(categories=("Labels",)), {"category": ""}, False),
    ],
)
def test_who_is_told_of_what(chosen: NotificationFilter, parts: Json, told: Json) -> None:
    assert compile_filter(chosen)(make_result(**parts)) is told
