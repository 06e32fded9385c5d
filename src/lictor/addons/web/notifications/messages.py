"""What new results look like to each kind of target. All texts of results come from strangers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from urllib.parse import quote, urlencode

import msgspec
import orjson

from lictor.addons.web.records import SEVERITIES, STATUSES, ReportedResult
from lictor.core.raw import Json, JsonObject

# Chat messages name so many results, and count the others.
SHOWN_IN_CHAT = 10
_LONGEST_TEXT = 300
_LONGEST_NAME = 120
_LONGEST_DATA = 8 * 1024
_MOST_PROPERTIES = 64
_RANKS = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_STATUS_RANKS = {status: rank for rank, status in enumerate(STATUSES)}
_SLACK_SIGNS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_CARD_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
_CARD_TYPE = "application/vnd.microsoft.card.adaptive"


class NotificationBatch(msgspec.Struct, frozen=True):
    """Results that go together, when they were put together, and how many were left out before."""

    results: tuple[ReportedResult, ...]
    made_at: datetime
    left_out: int = 0


# --- all kinds


def clean_text(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Text that shows as it is: without line ends, invisible signs and changes of direction."""
    plain = text[: longest + 1]
    if not plain.isprintable():
        plain = "".join(sign if sign.isprintable() else " " for sign in plain)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def name_resource(result: ReportedResult) -> str:
    """`Pod team-a/web`."""
    name = f"{result.namespace}/{result.name}" if result.namespace else result.name
    return clean_text(f"{result.kind} {name}".strip(), _LONGEST_NAME)


def name_rule(result: ReportedResult) -> str:
    """`require-labels/check-team`."""
    text = f"{result.policy}/{result.rule}" if result.rule else result.policy
    return clean_text(text, _LONGEST_NAME)


def build_link(page_url: str, *chosen: tuple[str, str]) -> str:
    """The address of the page with these results; empty if the address of the page is unknown."""
    if not page_url:
        return ""
    query = urlencode([pair for pair in chosen if pair[1]], errors="replace")
    return f"{page_url.rstrip('/')}/results?{query}"


def _rank(result: ReportedResult) -> tuple[int, int]:
    severity = _RANKS.get(result.severity, len(_RANKS))
    return severity, _STATUS_RANKS.get(result.status, len(_STATUS_RANKS))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_DATA else f"{text[:_LONGEST_DATA]}..."


# --- CloudEvents 1.0


def build_cloud_event(result: ReportedResult, page_url: str = "") -> JsonObject:
    """An event whose `id` is the same whenever this result is sent again."""
    event: JsonObject = {
        "specversion": "1.0",
        "id": hash_result(result, 16, result.message, str(result.timestamp), "").hex(),
        "source": f"/lictor/clusters/{quote(result.cluster, safe='', errors='replace') or '-'}",
        "type": f"io.lictor.result.{quote(result.status, safe='', errors='replace') or 'unknown'}",
        "subject": _cut("/".join(filter(None, (result.namespace, result.kind, result.name))))
        or "-",
        "datacontenttype": "application/json",
        "data": build_data(result, page_url),
    }
    if result.timestamp > 0:
        event["time"] = _write_time(result.timestamp)
    return event


def build_data(result: ReportedResult, page_url: str = "") -> JsonObject:
    """A result as plain JSON, with all fields of its report."""
    data: JsonObject = {
        "cluster": result.cluster,
        "source": result.source,
        "policy": result.policy,
        "rule": result.rule,
        "status": result.status,
        "severity": result.severity,
        "category": result.category,
        "message": _cut(result.message),
        "resource": {
            "apiVersion": result.api_version,
            "kind": result.kind,
            "namespace": result.namespace,
            "name": result.name,
            "uid": result.uid,
        },
        "report": result.report,
    }
    if result.properties:
        shown = list(result.properties.items())[:_MOST_PROPERTIES]
        data["properties"] = {name: _cut(value) for name, value in shown}
    link = build_link(
        page_url,
        ("cluster", result.cluster),
        ("namespace", result.namespace),
        ("policy", result.policy),
        ("name", result.name),
    )
    if link:
        data["link"] = link
    return data


def hash_result(result: ReportedResult, size: int, *more: str) -> bytes:
    """A hash of what a result is about, and of more texts."""
    parts = (
        result.cluster, result.source, result.policy, result.rule, result.status, result.kind,
        result.namespace, result.name, result.uid, *more,
    )  # fmt: skip
    return blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=size).digest()


def _write_time(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def encode_json(value: Json) -> bytes:
    """JSON, also of text with lone surrogates."""
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        import json

        return json.dumps(value).encode()


# --- chats


class _Digest(msgspec.Struct, frozen=True):
    """The text of a chat message about many results."""

    title: str
    shown: tuple[ReportedResult, ...]
    rest: str
    link: str


def _summarize(batch: NotificationBatch, page_url: str) -> _Digest:
    ranked = sorted(batch.results, key=_rank)
    shown, others = ranked[:SHOWN_IN_CHAT], ranked[SHOWN_IN_CHAT:]
    number = len(ranked)
    word = "violation" if {each.status for each in ranked} <= {"fail", "error"} else "result"
    clusters = sorted({each.cluster for each in ranked if each.cluster})
    where = f" in {clean_text(clusters[0], _LONGEST_NAME)}" if len(clusters) == 1 else ""
    title = f"{number} new policy {word}{'' if number == 1 else 's'}{where}"
    statuses = sorted({each.status for each in ranked} & set(STATUSES))
    link = build_link(page_url, *(("status", each) for each in statuses), ("within", "24h"))
    return _Digest(title, tuple(shown), _count_rest(others, batch.left_out), link)


def _count_rest(others: Sequence[ReportedResult], left_out: int) -> str:
    lines = []
    if others:
        policies = Counter(clean_text(each.policy, _LONGEST_NAME) for each in others)
        named = ", ".join(f"{name} ({number})" for name, number in policies.most_common(5))
        more = "" if len(policies) <= 5 else f" and {len(policies) - 5} more policies"
        lines.append(f"And {len(others)} more: {named}{more}.")
    if left_out:
        lines.append(f"{left_out} more exceeded the rate limit and were not sent; see the reports.")
    return " ".join(lines)


def _head(result: ReportedResult) -> str:
    severity = f" ({result.severity})" if result.severity in _RANKS and result.severity else ""
    return f"{clean_text(result.status, 20)}{severity}"


def build_slack(batch: NotificationBatch, page_url: str = "") -> JsonObject:
    """A message of Slack: what strangers wrote is escaped, and makes no links or mentions."""
    digest = _summarize(batch, page_url)
    blocks: list[JsonObject] = [
        {
            "type": "header",
            "text": {
                "type": "plain_text",
                "text": _escape_slack(digest.title)[:150],
                "emoji": False,
            },
        }
    ]
    blocks += [_build_section(each) for each in digest.shown]
    if digest.rest:
        blocks.append(_section(_escape_slack(digest.rest)))
    if digest.link:
        blocks.append(_section(f"<{digest.link}|Open the results>"))
    return {"text": _escape_slack(digest.title), "blocks": blocks}


def _build_section(result: ReportedResult) -> JsonObject:
    lines = [
        f"*{_escape_slack(_head(result))}* {_code(name_rule(result))}",
        f"{_code(name_resource(result))} {_escape_slack(clean_text(result.source, 40))}".rstrip(),
        _escape_slack(clean_text(result.message)),
    ]
    return _section("\n".join(line for line in lines if line))


def _section(text: str) -> JsonObject:
    # `verbatim`: addresses, names of people and of channels in it stay plain text.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _code(text: str) -> str:
    return f"`{_escape_slack(text.replace('`', chr(39)))}`"


def _escape_slack(text: str) -> str:
    return text.translate(_SLACK_SIGNS)


def build_teams(batch: NotificationBatch, page_url: str = "") -> JsonObject:
    """An adaptive card for Teams; strangers' text is in runs, which know no Markdown."""
    digest = _summarize(batch, page_url)
    body: list[JsonObject] = [_run_block((digest.title, {"size": "Large", "weight": "Bolder"}))]
    body += [_build_entry(each) for each in digest.shown]
    if digest.rest:
        body.append(_run_block((digest.rest, {})))
    card: JsonObject = {
        "$schema": _CARD_SCHEMA,
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": digest.title,
        "body": body,
    }
    if digest.link:
        card["actions"] = [
            {"type": "Action.OpenUrl", "title": "Open the results", "url": digest.link}
        ]
    attachment = {"contentType": _CARD_TYPE, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _build_entry(result: ReportedResult) -> JsonObject:
    color = "Attention" if result.status in ("fail", "error") else "Default"
    blocks = [
        _run_block((_head(result), {"weight": "Bolder", "color": color}), (name_rule(result), {})),
        _run_block((name_resource(result), {"fontType": "Monospace"})),
    ]
    message = clean_text(result.message)
    if message:
        blocks.append(_run_block((message, {"isSubtle": True})))
    return {"type": "Container", "separator": True, "items": blocks}


def _run_block(*runs: tuple[str, Mapping[str, Json]]) -> JsonObject:
    inlines = []
    for index, (text, style) in enumerate(runs):
        inlines.append({"type": "TextRun", "text": f"  {text}" if index else text, **style})
    return {"type": "RichTextBlock", "inlines": inlines}
