"""Every page, as HTML: what it shows, where its links lead, and what hostile reports cannot do."""

import asyncio
import re
from html import unescape
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from web_reports import entry, report, see_all, see_namespaces

from lictor.addons.web.history import TotalsHistory
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import choose_top, thin_out
from lictor.addons.web.pages.layout import read_static
from lictor.addons.web.pages.page import PageRequest, WebPage
from lictor.addons.web.pages.policy_text import TextLine, split_line
from lictor.addons.web.pages.render import render_page
from lictor.addons.web.pages.words import describe_distance, format_share
from lictor.addons.web.records import Board, ReportedResult, ResultFilter, TotalsPoint, Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.core.model.result import Failure

NOW = 1_750_000_000
HOSTILE = (
    "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>\"' {{7*7}} \u202e\ud800"
)
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels
  annotations:
    policies.kyverno.io/title: Every Pod has a team
    policies.kyverno.io/description: So that somebody answers.
    policies.kyverno.io/url: javascript:alert(3)
spec:
  rules:
  - name: first
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no, pattern: {metadata: {labels: {app: "?*"}}}}
  - name: labels-rule
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no, pattern: {metadata: {labels: {team: "?*"}}}}
"""
EXCEPTION = """
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: old-web, namespace: shop}
spec:
  exceptions: [{policyName: labels, ruleNames: [labels-rule]}]
  match: {any: [{resources: {kinds: [Pod], names: [old]}}]}
"""


class TriedData(PageData):
    """A state that looked at the object, and that can try a policy."""

    async def find_failure(self, result: ReportedResult, viewer: Viewer) -> Failure | None:
        return Failure("/metadata/labels/team", expected="?*", found=None)


@pytest.fixture
def state() -> PageData:
    moment = NOW - 86400
    history = TotalsHistory(clock=lambda: moment)
    data = TriedData(("here",), history)
    data.put_document("here", yaml.safe_load(POLICY))
    data.put_document("here", yaml.safe_load(EXCEPTION))
    history.note({("here", "shop"): (5, 0, 0, 1, 0)})
    moment = NOW
    stamp = {"timestamp": {"seconds": NOW - 7200}}
    failing = entry("labels", "fail", severity="high", category="Teams", **stamp)
    data.results.put_report("here", report("web", "shop", failing, entry("images", "pass")))
    data.results.put_report("here", report("db", "bank", entry("labels", "pass")))
    data.results.put_report(
        "here",
        report("node", "", entry("cve", "warn", source="trivy", properties={"fix": "update"})),
    )
    data.note_totals()
    return data


def show(state: PageData, address: str, viewer: Viewer | None = None, **fields: object) -> WebPage:
    parts = urlsplit(address)
    query = tuple(parse_qsl(parts.query, keep_blank_values=True))
    request = PageRequest(path=parts.path, query=query, now=NOW, **fields)
    return asyncio.run(render_page(request, state, viewer or see_all(*state.list_clusters())))


def list_links(page: WebPage) -> list[str]:
    return [unescape(found) for found in re.findall(r'<a [^>]*?href="([^"]*)"', page.body)]


def read_text(page: WebPage) -> str:
    main = page.body[page.body.index("<main") :]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", main)).split())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/", ["Overview", "Fail 1 violate a rule", "−4 in 1 day", "Policies with most failures", "50 % of results pass"]),
        ("/results", ["4 results", "labels says fail", "2 hours ago"]),
        ("/results?status=fail", ["1 result", "Status: fail"]),
        ("/results?status=fail&page=9", ["No results match", "Page 9 of 1", "Previous"]),
        ("/results?namespace=-", ["1 result", "Namespace: cluster-wide"]),
        ("/policies", ["3 policies, 2 with failures, errors or warnings", "labels"]),
        ("/policy?policy=labels", ["Every Pod has a team", "So that somebody answers.", "2 results", "YAML"]),
        ("/namespaces", ["3 namespaces", "shop 1", "bank 0", "cluster-wide 1"]),
        ("/namespaces?find=SHO", ["1 namespace,"]),
        ("/namespace?namespace=shop", ["shop", "2 results", "Kinds"]),
        ("/policies?sort=name", ["3 policies, 2 with failures, errors or warnings"]),
        ("/resources", ["3 resources", "Pod shop/ web"]),
        ("/resource?namespace=shop&kind=Pod&name=web", ["Pod web", "in shop", "2 results"]),
        ("/exceptions", ["1 exception", "shop/ old-web", "labels labels-rule", "never"]),
        ("/history", ["Latest changes"]),
        ("/print", ["Policy report", "shop 1", "labels says fail"]),
        ("/clusters", ["Policies in each cluster"]),
        ("/boards", ["There are no boards yet."]),
    ],
)  # fmt: skip
def test_pages_show(state: PageData, address: str, expected: list[str]) -> None:
    page = show(state, address)
    assert page.status == HTTPStatus.OK
    text = read_text(page)
    assert not [words for words in expected if words not in text], text


def test_every_link_leads_to_a_page(state: PageData) -> None:
    """Whoever follows links finds pages only, and nothing without a way on."""
    waiting, seen = ["/"], set()
    while waiting:
        address = waiting.pop()
        if address in seen or urlsplit(address).path in (
            addresses.EXPORT_CSV,
            addresses.EXPORT_JSON,
        ):
            continue
        seen.add(address)
        page = show(state, address, boards=(Board("b", ResultFilter(statuses=("fail",))),))
        assert page.status == HTTPStatus.OK, address
        waiting += [link for link in list_links(page) if not link.startswith("#")]
    assert {urlsplit(address).path for address in seen} >= {
        "/",
        "/result",
        "/policy",
        "/resource",
        "/namespace",
    }


def test_one_result_says_what_is_wrong_and_what_to_do(state: PageData) -> None:
    found = next(
        link for link in list_links(show(state, "/results?status=fail")) if "/result?" in link
    )
    page = show(state, found)
    text = read_text(page)
    for words in (
        "Every Pod has a team",
        "At /metadata/labels/team Expected ?* Found nothing",
        "Add /metadata/labels/team : any text that is not empty.",
        "kubectl edit pod web -n shop",
        "lictor explain labels.yaml -r -",
    ):
        assert words in text, text
    marked = re.findall(r'class="line marked"[^>]*>(.*?)\n</span>', page.body, re.DOTALL)
    assert "labels-rule" in "".join(marked)
    assert "first" not in "".join(marked)
    # A link that an author wrote must not run anything.
    assert not [link for link in list_links(page) if link.startswith("javascript")]


def test_the_exception_on_the_page_frees_that_resource(state: PageData) -> None:
    page = show(state, "/result?policy=labels&rule=labels-rule&namespace=shop&kind=Pod&name=web")
    text = unescape(re.search(r'class="yaml"[^>]*><code>(.*?)</code>', page.body, re.DOTALL)[1])
    made = yaml.safe_load(text)
    assert made["kind"] == "PolicyException"
    assert made["metadata"]["namespace"] == "shop"
    assert made["spec"]["exceptions"] == [{"policyName": "labels", "ruleNames": ["labels-rule"]}]
    assert made["spec"]["match"]["all"][0]["resources"]["names"] == ["web"]


def test_advice_of_other_tools_is_shown(state: PageData) -> None:
    page = show(state, "/result?policy=cve&namespace=-&name=node")
    assert "How to fix it update" in read_text(page)
    assert "PolicyException" not in page.body


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nothing", HTTPStatus.NOT_FOUND),
        ("/result", HTTPStatus.NOT_FOUND),
        ("/result?policy=unknown", HTTPStatus.NOT_FOUND),
        ("/policy", HTTPStatus.NOT_FOUND),
        ("/policy?policy=unknown", HTTPStatus.NOT_FOUND),
        ("/namespace", HTTPStatus.NOT_FOUND),
        ("/resource", HTTPStatus.NOT_FOUND),
        ("/results?within=soon", HTTPStatus.BAD_REQUEST),
        (f"/results?q={'x' * 501}", HTTPStatus.BAD_REQUEST),
        ("/results?labels=a==,,b", HTTPStatus.BAD_REQUEST),
        ("/results?page=nine", HTTPStatus.BAD_REQUEST),
        ("/results?page=0", HTTPStatus.BAD_REQUEST),
        ("/results?page=99999999999999999999", HTTPStatus.BAD_REQUEST),
        ("/results?page=2", HTTPStatus.OK),
        ("/results?status=fial", HTTPStatus.BAD_REQUEST),
        ("/results?stauts=fail", HTTPStatus.BAD_REQUEST),
    ],
)
def test_wrong_addresses_are_told(state: PageData, address: str, status: HTTPStatus) -> None:
    assert show(state, address).status == status


def test_an_unknown_parameter_is_answered_with_a_hint(state: PageData) -> None:
    text = read_text(show(state, "/results?stauts=fail"))
    assert "unknown parameter 'stauts'; did you mean 'status'?" in text


class UnreadData(PageData):
    """A state whose reports are still being read."""

    def is_ready(self) -> bool:
        return False


def test_nothing_is_called_right_while_reports_are_being_read() -> None:
    assert "There are no failures" not in read_text(show(UnreadData(("here",)), "/"))


def test_a_viewer_sees_what_they_may(state: PageData) -> None:
    viewer = see_namespaces("bank")
    for address in ("/", "/results", "/namespaces", "/resources", "/print", "/exceptions"):
        assert "web" not in read_text(show(state, address, viewer)).split(), address
    hidden = "/result?policy=labels&rule=labels-rule&namespace=shop&kind=Pod&name=web"
    assert show(state, hidden, viewer).status == HTTPStatus.NOT_FOUND
    assert show(state, "/results", Viewer("nobody", {})).body.count("<tr") == 0


def test_what_is_missing_is_told(state: PageData) -> None:
    viewer = Viewer("dev", see_all().namespaces, unsettled=("here",))
    assert "less is shown: here" in read_text(show(state, "/", viewer))


def test_hostile_reports_stay_text() -> None:
    data = TriedData(("here",))
    # No policy holds half a character: the API server does not take it.
    name = HOSTILE.rstrip("\ud800")
    fields = dict.fromkeys(("rule", "message", "category", "source", "severity"), HOSTILE)
    bad = entry(name, "fail", **fields, properties={HOSTILE: HOSTILE})
    data.results.put_report("here", report("web", "shop", bad) | {"scope": {"kind": HOSTILE, "name": HOSTILE, "namespace": "shop", "apiVersion": HOSTILE}})  # fmt: skip
    data.put_document("here", {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name, "annotations": {"policies.kyverno.io/title": name, "policies.kyverno.io/url": "javascript:alert(1)"}}, "spec": {"rules": [{"name": name}]}})  # fmt: skip
    board = Board(HOSTILE, ResultFilter(text=HOSTILE), HOSTILE, HOSTILE)
    first = show(data, "/results")
    inner = [link for link in list_links(first) if urlsplit(link).path != "/"]
    for address in [
        "/",
        "/policies",
        "/resources",
        "/print",
        "/boards",
        f"/results?q={HOSTILE[:90]}",
        *inner,
    ]:
        if urlsplit(address).path in (addresses.EXPORT_CSV, addresses.EXPORT_JSON):
            continue
        page = show(data, address, boards=(board,))
        body = page.body.replace('<script src="/static/page.js?', "")
        assert "<script" not in body, address
        assert "<img" not in body, address
        assert "\u202e" not in body, address
        assert page.body.encode(), address


def test_several_clusters_stand_side_by_side() -> None:
    data = TriedData(("east", "west"))
    data.results.put_report("east", report("web", "shop", entry("labels", "fail")))
    data.results.put_report("west", report("web", "shop", entry("images", "fail")))
    text = read_text(show(data, "/clusters"))
    assert "Policy east west" in text
    # Not there is not the same as nothing wrong.
    assert "labels 1 –" in text
    links = list_links(show(data, "/results"))
    assert all("cluster=" in link for link in links if link.startswith("/result?"))


def test_a_base_path_is_before_every_address(state: PageData) -> None:
    page = show(state, "/results", base="/lictor", can_sign_out=True)
    found = re.findall(r'(?:href|src|action)="([^"#]+)"', page.body)
    assert found
    assert all(address.startswith("/lictor/") for address in found)


@pytest.mark.parametrize(
    "chosen",
    [
        ResultFilter(),
        ResultFilter(namespaces=("", "a&b=c"), statuses=("fail",), text="x y%"),
        ResultFilter(within=86400, properties=("k=v",), namespace_labels="a in (b,c)", name="ü"),
        ResultFilter(within=90 * 60, severities=("",), rules=("a/b",), clusters=("c",)),
    ],
)
def test_filters_survive_an_address(chosen: ResultFilter) -> None:
    query = parse_qsl(addresses.write_query(chosen), keep_blank_values=True)
    assert addresses.read_filter(query) == chosen


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "–"),
        ({"pass": 3}, "100 %"),
        ({"pass": 1, "fail": 2}, "33.3 %"),
        ({"pass": 99_999, "fail": 1}, "> 99.9 %"),
        ({"skip": 3}, "–"),
    ],
)
def test_share_is_never_flattering(counts: dict[str, int], text: str) -> None:
    assert format_share(counts) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (NOW - 5, "just now"),
        (NOW - 60, "1 minute ago"),
        (NOW - 7300, "2 hours ago"),
        (NOW + 2 * 86400, "in 2 days"),
    ],
)
def test_times_are_told_from_now(timestamp: int, text: str) -> None:
    assert describe_distance(timestamp, NOW) == text


def test_plots_keep_the_worst() -> None:
    points = [TotalsPoint(n, {"fail": 99 if n == 777 else 1}) for n in range(5000)]
    kept = thin_out(points)
    assert len(kept) <= 300
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert points[777] in kept
    assert [choose_top(n) for n in (0, 1, 4, 5, 206, 9999)] == [4, 4, 4, 8, 240, 12000]


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("  - name: x", TextLine("  - ", "name", ": x")),
        ("# <b>", TextLine("# <b>", is_comment=True)),
        ("plain text", TextLine("plain text")),
        ('key: "a: b"', TextLine("", "key", ': "a: b"')),
    ],
)
def test_keys_of_yaml_are_separated_from_values(line: str, made: TextLine) -> None:
    assert split_line(line) == made


def test_static_files_are_few_and_ours() -> None:
    style, script = read_static("page.css"), read_static("page.js")
    assert style is not None
    assert script is not None
    assert read_static("../records.py") is None
    for file in (style, script):
        assert b"http" not in file.body.replace(b"https", b"http") or b"://" not in file.body
    assert b"innerHTML" not in script.body
    assert b"eval(" not in script.body


@pytest.mark.parametrize("path", ["/policies", "/resources"])
def test_columns_can_be_sorted(state: PageData, path: str) -> None:
    links = list_links(show(state, path))
    assert {f"{path}?sort={order}" for order in ("name", "fail", "pass")} <= set(links)
    page = show(state, f"{path}?sort=pass").body
    numbers = re.findall(r'data-label="Pass"[^>]*>(\d+)<', page)
    assert numbers == sorted(numbers, reverse=True)
    names = re.findall(r'scope="row">.*?class="name"[^>]*>(?:<span.*?</span>)?([^<]+)<', page)
    by_name = show(state, f"{path}?sort=name").body
    assert len(names) == by_name.count('scope="row"')
