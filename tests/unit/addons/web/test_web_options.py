"""What `lictor web` may be asked for, and boards: saved filters that show no more than they say."""

from pathlib import Path

import pytest

from lictor.addons.web.boards import read_boards, read_boards_file
from lictor.addons.web.options import WebOptions, check_options, load_clusters
from lictor.addons.web.records import ResultFilter
from lictor.core.errors import LoadError, UsageError

HERE = Path("reports.yaml")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (WebOptions(), None),
        (WebOptions(address="::1"), None),
        (WebOptions(reports=(HERE,)), None),
        (WebOptions(address="0.0.0.0", requires_login=True), None),
        (WebOptions(address="0.0.0.0"), "--login"),
        (WebOptions(address="::"), "--login"),
        (WebOptions(address="192.168.1.2"), "--login"),
        (WebOptions(address="localhost"), "--login"),
        (WebOptions(address="0.0.0.0", reports=(HERE,)), "on this machine only"),
        (WebOptions(reports=(HERE,), requires_login=True), "--report"),
        (WebOptions(reports=(HERE,), kubeconfigs=("a",)), "--report"),
        (WebOptions(certificate=HERE), "--tls-key"),
        (WebOptions(key=HERE), "--tls-cert"),
        (WebOptions(client_authority=HERE), "--client-ca"),
        (WebOptions(client_authority=HERE, requires_login=True), "--client-ca"),
        (WebOptions(base="/lictor"), None),
        (WebOptions(base="lictor"), "--base"),
        (WebOptions(base="/a//b"), "--base"),
        (WebOptions(base="/a/../b"), "--base"),
        (WebOptions(base='/"><script>'), "--base"),
    ],
)
def test_what_makes_sense(options, told):
    if told is None:
        check_options(options)
        return
    with pytest.raises(UsageError, match=told):
        check_options(options)


@pytest.mark.parametrize(
    ("options", "secure"),
    [
        (WebOptions(), False),
        (WebOptions(certificate=HERE, key=HERE), True),
        # Nothing is served in the clear to other machines.
        (WebOptions(address="0.0.0.0", requires_login=True), True),
    ],
)
def test_where_tls_is_used(options, secure):
    assert options.is_secure is secure


def kubeconfig(folder, name, context):
    file = folder / name
    file.write_text(
        f"current-context: {context}\n"
        f"contexts: [{{name: {context}, context: {{cluster: c}}}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://localhost:1'}}]\n",
        encoding="utf-8",
    )
    return str(file)


def test_clusters_are_named_after_their_contexts(tmp_path):
    files = tuple(kubeconfig(tmp_path, name, name) for name in ("east", "west"))
    assert list(load_clusters(WebOptions(kubeconfigs=files))) == ["east", "west"]
    same = (files[0], kubeconfig(tmp_path, "other", "east"))
    assert list(load_clusters(WebOptions(kubeconfigs=same))) == ["east", f"east ({same[1]})"]
    with pytest.raises(UsageError, match="--context"):
        load_clusters(WebOptions(kubeconfigs=files, contexts=("east",)))


def test_users_of_several_clusters_are_not_taken_for_the_same(tmp_path):
    files = tuple(kubeconfig(tmp_path, name, name) for name in ("east", "west"))
    options = WebOptions(kubeconfigs=files, requires_login=True)
    with pytest.raises(UsageError, match="--same-users"):
        load_clusters(options)
    assert load_clusters(WebOptions(kubeconfigs=files, requires_login=True, shares_users=True))


# --- boards

BOARDS = """\
- name: payments
  title: Team payments
  filter:
    labels: team=payments
    severity: [critical, high]
    within: 7d
- name: copied
  filter: "?namespace=red&status=fail&status=error"
"""


def test_boards():
    first, second = read_boards(BOARDS, "boards.yaml")
    assert (first.name, first.title) == ("payments", "Team payments")
    assert first.filter == ResultFilter(
        namespace_labels="team=payments", severities=("critical", "high"), within=7 * 86400
    )
    assert second.filter == ResultFilter(namespaces=("red",), statuses=("fail", "error"))
    assert read_boards("", "boards.yaml") == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a", "boards.yaml:1:1: expected a list"),
        ("- a", "boards.yaml:1:3: a board has a name"),
        ("- name: a", "without|write parameters"),
        ("- {name: a, filter: {}}", "is everything"),
        ("- {name: a, filter: ''}", "is everything"),
        ("- {name: A b, filter: q=x}", "lower case"),
        ("- {name: a, title: [b], filter: q=x}", "title: write a text"),
        ("- {name: a, filters: q=x, filter: q=y}", "unknown field filters"),
        # What is not known would be left out, and more be shown than was meant.
        ("- {name: a, filter: {namespaces: red}}", "no parameter namespaces"),
        ("- {name: a, filter: 'q=x&namespac=red'}", "no parameter namespac"),
        ("- {name: a, filter: {namespace: [1]}}", "takes texts"),
        ("- {name: a, filter: {q: x, within: soon}}", "within"),
        ("- {name: a, filter: q=x}\n- {name: a, filter: q=y}", "2:.*two boards a"),
        ("- {name: a, filter: [q]}", "write parameters"),
        ("- [", "boards.yaml"),
    ],
)
def test_boards_that_are_wrong(text, told):
    with pytest.raises(LoadError, match=told):
        read_boards(text, "boards.yaml")


def test_boards_have_bounds(tmp_path):
    many = "".join(f"- {{name: b{number}, filter: q=x}}\n" for number in range(201))
    with pytest.raises(LoadError, match="at most 200"):
        read_boards(many, "boards.yaml")
    query = "&".join(f"q={number}" for number in range(200))
    with pytest.raises(LoadError, match="at most 100"):
        read_boards(f"- {{name: a, filter: '{query}'}}", "boards.yaml")
    with pytest.raises(LoadError, match="nowhere"):
        read_boards_file(tmp_path / "nowhere")
