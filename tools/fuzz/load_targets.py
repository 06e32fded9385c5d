"""The way in: bytes of any kind into documents, policies, reviews and files of the command line."""

from typing import Any

from sameness import are_same
from strategies.json_values import text
from strategies.source import Source
from strategies.texts import cli_bytes, review_bytes, yaml_bytes
from targets import Target

from lictor.cli.inputs.input_files import (
    load_tests,
    read_cluster_resource,
    read_context,
    read_user_info,
    read_values,
)
from lictor.cli.inputs.requests import parse_settings
from lictor.core.errors import LoadError
from lictor.core.load.policies import Sourced, load_documents
from lictor.core.load.review import load_review
from lictor.core.load.yaml import iter_documents
from lictor.core.raw import Json


def _load(data: bytes) -> None:
    loaded = load_documents(data, "file.yaml")
    for problem in loaded.problems:
        assert problem.location.line >= 1
        assert problem.location.column >= 1
        str(problem)
    found: list[Sourced[Any]] = [*loaded.policies, *loaded.raw, *loaded.resources]
    for sourced in found:
        line, _ = sourced.position(("spec", "rules", 0))
        assert line >= 1


def _iterate(data: bytes) -> None:
    first = [document.body for document in iter_documents(data, "file.yaml")]
    for body in first:
        _check_json(body)
    again = [document.body for document in iter_documents(data, "file.yaml")]
    assert are_same(first, again), "two readings differ"


def _check_json(body: Json) -> None:
    """What is loaded is JSON that Kubernetes could hold, and nothing else."""
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            assert all(type(key) is str for key in node), "a key is no text"
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
        elif type(node) is int:
            assert -(2**63) <= node < 2**63, "an integer is too large"
        elif type(node) is float:
            assert node - node == 0, "a number is not finite"
        else:
            assert node is None or type(node) in (bool, str), f"{type(node)} is no JSON"


def _check_place(error: LoadError) -> None:
    assert error.where
    assert str(error)


_READERS = (load_tests, read_values, read_user_info, read_context, read_cluster_resource)


def _load_cli(data: bytes) -> None:
    for read in _READERS:
        try:
            read(data, "file.yaml")
        except LoadError as error:
            _check_place(error)


def _parse_settings(texts: list[str]) -> None:
    values, ignored = parse_settings(texts)
    assert all(values.values())
    assert isinstance(ignored, list)


LOAD_TARGETS = (
    Target("load.documents", 8, lambda s: {"data": yaml_bytes(s)}, _load, ()),
    Target("load.yaml", 4, lambda s: {"data": yaml_bytes(s)}, _iterate),
    Target("load.cli-files", 5, lambda s: {"data": cli_bytes(s)}, _load_cli, ()),
    Target("load.review", 4, lambda s: {"data": review_bytes(s)}, load_review),
    Target("load.settings", 1, lambda s: {"texts": s.several(_setting, 3)}, _parse_settings),
)


def _setting(source: Source) -> str:
    return ",".join(f"{text(source)}={text(source)}" for _ in range(1 + source.count(3)))
