"""A run over many files and clusters, by processes: the same answers as a run without them."""

import json
import random
import tarfile
from array import array

import pytest

from lictor.addons.fleet.addresses import InputFile
from lictor.addons.fleet.dispatch import Died, Dispatcher
from lictor.addons.fleet.evaluator import FilePart, FleetEvaluator
from lictor.addons.fleet.run import group_files, group_parts
from lictor.cli.exit_codes import run
from lictor.cli.inputs.resources import DocumentSpan
from lictor.cli.inputs.shards import Shard

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: label
    match:
      any:
      - resources:
          kinds: [Pod]
          namespaceSelector: {matchLabels: {strict: "yes"}}
    validate:
      message: no team
      pattern: {metadata: {labels: {team: "?*"}}}
"""


def pod(name, team="", namespace="a"):
    labels = f"labels: {{team: {team}}}" if team else "labels: {}"
    head = f"metadata: {{name: {name}, namespace: {namespace}, {labels}}}"
    return (
        f"---\napiVersion: v1\nkind: Pod\n{head}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    )


def namespace(name, strict):
    return f"---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{strict: '{strict}'}}}}\n"


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Two clusters: what is wrong in one is fine in the other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    for cluster, strict in (("east", "yes"), ("west", "no")):
        folder = tmp_path / "snapshots" / cluster
        folder.mkdir(parents=True)
        (folder / "a-pods.yaml").write_text(pod("one") + pod("two", "x"))
        (folder / "b-spaces.yaml").write_text(namespace("a", strict))
    return tmp_path


def apply(capsys, *arguments):
    code = run(["apply", "policy.yaml", *arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


CLUSTERS = ("--cluster-from", "snapshots/{cluster}/*.yaml")


def test_each_cluster_is_judged_by_its_own_namespaces(fleet, capsys):
    code, out, _ = apply(capsys, "-r", "snapshots", *CLUSTERS, "--output-format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [(row["cluster"], row["name"], row["result"]) for row in rows] == [
        ("east", "one", "fail"),
        ("east", "two", "pass"),
    ]


def test_text_says_which_cluster(fleet, capsys):
    _, out, _ = apply(capsys, "-r", "snapshots", *CLUSTERS)
    assert "\ncluster east:\npolicy team -> resource a/Pod/one failed" in out
    assert "cluster west" not in out
    assert "to 6 resource(s)" in out
    assert "pass: 1, fail: 1, warn: 0, error: 0, skip: 0" in out


def test_reports_and_tables_say_which_cluster(fleet, capsys):
    _, out, _ = apply(capsys, "-r", "snapshots", *CLUSTERS, "--output-format", "json")
    results = json.loads(out)["results"]
    assert [each["properties"]["cluster"] for each in results] == ["east", "east"]
    _, out, _ = apply(capsys, "-r", "snapshots", *CLUSTERS, "--output-format", "markdown")
    assert "east: a/Pod/one" in out


@pytest.mark.parametrize(
    "flags",
    [(), ("--policy-report",), ("--table",), ("--output-format", "sarif"), ("--file-names",)],
)
@pytest.mark.parametrize("parallel", ["1", "3"])
def test_without_clusters_all_is_as_without_a_fleet(fleet, capsys, monkeypatch, flags, parallel):
    monkeypatch.setattr("lictor.cli.apply.time.time", lambda: 1_700_000_000)
    text = "".join(pod(f"p{n}", "x" if n % 3 else "") for n in range(400))
    (fleet / "many.yaml").write_text(text + namespace("a", "yes") + "---\nbroken: [\n")
    paths = ("-r", "many.yaml", "-r", "snapshots/east", "--continue-on-fail", *flags)
    plain = apply(capsys, *paths)
    # `file://` alone makes a fleet of it; what is shown is the path as it was given.
    monkeypatch.setattr("lictor.addons.fleet.run._TASK_BYTES", 3000)
    monkeypatch.setattr("lictor.cli.apply.is_fleet", lambda _: True)
    assert apply(capsys, *paths, "--parallel", parallel) == plain
    assert plain[0] == 1


def test_a_cluster_without_resources_is_an_error_and_the_others_are_judged(fleet, capsys):
    (fleet / "snapshots" / "east" / "a-pods.yaml").write_text(pod("fine", "x"))
    (fleet / "snapshots" / "empty").mkdir()
    (fleet / "snapshots" / "empty" / "a.yaml").write_text("# nothing\n")
    code, out, err = apply(capsys, "-r", "snapshots", *CLUSTERS)
    assert code == 1
    assert "cluster empty: no resources were found" in err
    assert "pass: 1, fail: 0, warn: 0, error: 1" in out


def test_an_empty_fleet_is_an_error(fleet, capsys):
    (fleet / "none").mkdir()
    (fleet / "none" / "a.yaml").write_text("# nothing\n")
    code, _, err = apply(capsys, "-r", "none/*.yaml", "--cluster-from", "{cluster}.yaml")
    assert (code, "no resources were found in none/*.yaml" in err) == (1, True)
    (fleet / "hollow").mkdir()
    code, _, err = apply(capsys, "-r", "hollow", "--cluster-from", "{cluster}.yaml")
    assert (code, "there are no YAML files in this folder" in err) == (1, True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-r", "snapshots", "--engine", "spark"), "unknown engine 'spark': choose local, ray"),
        (("-r", "snapshots", "--engine", "ray://"), "the address is missing"),
        (("-r", "-", "--engine", "ray"), "standard input cannot be shared out"),
        (("--json", "x.json", "--engine", "ray"), "payloads"),
        (("-c", "--engine", "ray"), "--cluster reads a live cluster"),
        (("-r", "snapshots", "--cluster-from", "x/*.yaml"), "write {cluster} once"),
        (("-r", "snapshots", "--cluster-from", "no/{cluster}.yaml"), "no cluster can be named"),
        (("-r", "snapshots", "--output-format", "parquet"), "name its file by --output"),
    ],
)
def test_wrong_calls(fleet, capsys, flags, message):
    code, _, err = apply(capsys, *flags)
    assert code == 1
    assert message in err


def test_an_archive_of_many_clusters(fleet, capsys):
    with tarfile.open("fleet.tar", "w") as archive:
        archive.add("snapshots")
    plain = apply(capsys, "-r", "snapshots", *CLUSTERS, "--output-format", "jsonl")
    packed = apply(capsys, "-r", "fleet.tar", *CLUSTERS, "--output-format", "jsonl")
    assert packed[0] == plain[0]
    assert [json.loads(line)["name"] for line in packed[1].splitlines()] == ["one", "two"]


def test_addresses_are_read_as_files_are(fleet, capsys):
    fsspec = pytest.importorskip("fsspec", reason="fsspec comes with lictor[ray]")
    files = fsspec.filesystem("memory")
    files.put(str(fleet / "snapshots"), "/bucket/snapshots", recursive=True)
    try:
        stored = apply(capsys, "-r", "memory://bucket/snapshots", *CLUSTERS)
    finally:
        files.store.clear()
    assert stored == apply(capsys, "-r", "snapshots", *CLUSTERS)


def test_an_error_in_a_worker_ends_the_run(fleet, capsys):
    (fleet / "snapshots" / "west" / "c.yaml").write_text("apiVersion: v1\nkind: [\n")
    code, _, err = apply(capsys, "-r", "snapshots", *CLUSTERS, "--parallel", "2")
    assert code == 1
    assert "snapshots/west/c.yaml:" in err


def test_rows_go_to_files_beside_other_output(fleet, capsys):
    pytest.importorskip("pyarrow", reason="pyarrow comes with lictor[ray]")
    from pyarrow import parquet

    files = ("--output-file", "jsonl=rows.jsonl,parquet=rows.parquet")
    apply(capsys, "-r", "snapshots", *CLUSTERS, *files)
    lines = [json.loads(line) for line in (fleet / "rows.jsonl").read_text().splitlines()]
    table = parquet.read_table("rows.parquet")
    assert table.num_rows == 2
    assert table.column_names == list(lines[0])
    shown = [{name: str(row[name]) for name in row if name != "time"} for row in table.to_pylist()]
    assert shown == [{name: row[name] for name in row if name != "time"} for row in lines]


def test_what_to_install_where_pyarrow_is_missing(fleet, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    code, _, err = apply(capsys, "-r", "snapshots", "--output-file", "parquet=x.parquet")
    assert (code, "pip install 'lictor[ray]'" in err) == (1, True)


def test_what_to_install_where_ray_is_missing(fleet, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    code, _, err = apply(capsys, "-r", "snapshots", "--engine", "ray")
    assert (code, "pip install 'lictor[ray]'" in err) == (1, True)


def test_garbage_of_a_task_is_not_kept_for_ever(fleet, capsys, monkeypatch):
    # What is frozen is never looked at again: once for each task, and workers would only grow.
    frozen = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(1))
    monkeypatch.setattr("lictor.addons.fleet.run._TASK_BYTES", 200)
    apply(capsys, "-r", "snapshots", *CLUSTERS, "--parallel", "1")
    few = len(frozen)
    for number in range(5):
        (fleet / "snapshots" / "east" / f"more-{number}.yaml").write_text(pod("x") + pod("y"))
    apply(capsys, "-r", "snapshots", *CLUSTERS, "--parallel", "1")
    assert len(frozen) == 2 * few


class DyingWorkers:
    """Does what Ray's workers do, in this process; one of three tasks kills its worker."""

    def __init__(self, job):
        self.job = job
        self.sent = {}
        self.count = 0
        self.random = random.Random(5)

    def start(self):
        self.count += 1
        self.sent[self.count] = (FleetEvaluator(self.job), [])
        return self.count

    def send(self, worker, task):
        self.sent[worker][1].append(task)

    def wait(self):
        worker = self.random.choice([each for each, (_, tasks) in self.sent.items() if tasks])
        evaluator, tasks = self.sent[worker]
        if self.random.random() < 0.3:
            del self.sent[worker]
            return worker, Died("killed")
        return worker, evaluator.run(tasks.pop(0))


def test_workers_that_die_change_nothing(fleet, capsys, monkeypatch):
    text = "".join(pod(f"p{n}", "x" if n % 3 else "") for n in range(300))
    (fleet / "snapshots" / "east" / "many.yaml").write_text(text)
    plain = apply(capsys, "-r", "snapshots", *CLUSTERS)
    monkeypatch.setattr("lictor.addons.fleet.run._TASK_BYTES", 3000)
    monkeypatch.setattr(
        "lictor.addons.fleet.run.ProcessRunner",
        lambda job, _: Dispatcher(DyingWorkers(job), 3, attempts=50),
    )
    code, out, err = apply(capsys, "-r", "snapshots", *CLUSTERS)
    assert (code, out) == plain[:2]
    assert "workers that died: " in err


def shard(size, start=0):
    return Shard(0, DocumentSpan(start, start + size), 0, 0, array("Q", (0, size)))


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([5, 5, 5], [[5, 5], [5]]),
        ([50, 1, 1], [[50], [1, 1]]),
        ([None, 1], [[None], [1]]),
        ([], []),
    ],
)
def test_files_are_grouped_by_bytes(sizes, groups):
    files = [InputFile(f"{n}", f"{n}", size) for n, size in enumerate(sizes)]
    found = [[file.size for file in group] for group in group_files(files, 10)]
    assert found == groups


@pytest.mark.parametrize(
    ("parts", "groups"),
    [
        # A large file is cut, small ones are joined, and clusters stay apart.
        ([("a", [4, 4, 4, 4])], [("a", [[4, 4]]), ("a", [[4, 4]])]),
        ([("a", [4]), ("a", [4]), ("b", [1])], [("a", [[4], [4]]), ("b", [[1]])]),
        ([("a", [99])], [("a", [[99]])]),
        ([("a", []), ("b", [1]), ("a", [1])], [("b", [[1]]), ("a", [[1]])]),
    ],
)
def test_shards_are_grouped_by_bytes_and_cluster(parts, groups):
    file = InputFile("x", "x", 1)
    given = [(name, FilePart(file, 0, tuple(map(shard, sizes)))) for name, sizes in parts]
    found = [
        (name, [[each.size for each in part.shards] for part in group])
        for name, group in group_parts(given, 10)
    ]
    assert found == groups
