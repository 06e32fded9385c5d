"""Names of clusters from paths."""

import pytest

from lictor.addons.fleet.addresses import compile_cluster_template, name_stored
from lictor.core.errors import LoadError, UsageError


@pytest.mark.parametrize(
    ("scheme", "name", "address"),
    [
        ("s3", "bucket/a.yaml", "s3://bucket/a.yaml"),
        ("s3", "s3://bucket/a.yaml", "s3://bucket/a.yaml"),
        ("file", "/data/a.yaml", "file:///data/a.yaml"),
        ("s3", "file:///etc/passwd", None),
        ("s3", "ftp://10.0.0.1/a.yaml", None),
    ],
)
def test_a_store_names_files_of_its_own_only(scheme, name, address):
    if address is not None:
        assert name_stored(scheme, name, "s3://bucket") == address
        return
    with pytest.raises(LoadError, match="names a file elsewhere"):
        name_stored(scheme, name, "s3://bucket")


@pytest.mark.parametrize(
    ("template", "path", "cluster"),
    [
        ("", "anything/at/all.yaml", ""),
        ("snapshots/{cluster}/*.json", "snapshots/eu-1/pods.json", "eu-1"),
        ("snapshots/{cluster}/*.json", "s3://bucket/deep/snapshots/eu-1/pods.json", "eu-1"),
        ("./snapshots/{cluster}/*.json", "snapshots/eu-1/pods.json", "eu-1"),
        ("/data/{cluster}/*.yaml", "/data/a/b.yaml", "a"),
        ("{cluster}.yaml", "snapshots/prod.eu.yaml", "prod.eu"),
        ("{cluster}.yaml", "prod.yaml", "prod"),
        ("{cluster}-2026-??-??.json", "s/prod-eu-2026-11-16.json", "prod-eu"),
        ("{cluster}/**", "clusters/a/b/c.yaml", "clusters"),
        ("clusters/{cluster}/**/*.yaml", "x/clusters/a/b/c/d.yaml", "a"),
        ("clusters/{cluster}/**/*.yaml", "clusters/a/d.yaml", "a"),
        ("s3://bucket/{cluster}/all.json", "s3://bucket/a/all.json", "a"),
        ("a+b/{cluster}.yaml", "a+b/c.yaml", "c"),
    ],
)
def test_the_path_names_the_cluster(template, path, cluster):
    assert compile_cluster_template(template)(path) == cluster


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("snapshots/{cluster}/*.json", "snapshots/eu-1/more/pods.json"),
        ("snapshots/{cluster}/*.json", "mysnapshots/eu-1/pods.json"),
        ("snapshots/{cluster}/*.json", "snapshots/pods.json"),
        ("{cluster}.yaml", "pods.yml"),
        ("a+b/{cluster}.yaml", "aab/c.yaml"),
        ("/data/{cluster}.yaml", "other/data/c.yaml"),
    ],
)
def test_a_path_that_does_not_fit_is_an_error_and_named(template, path):
    with pytest.raises(LoadError, match="no cluster can be named") as error:
        compile_cluster_template(template)(path)
    assert error.value.where == path


@pytest.mark.parametrize("template", ["snapshots/*.json", "{cluster}/{cluster}", "{name}.yaml"])
def test_a_template_names_the_cluster_once(template):
    with pytest.raises(UsageError, match=r"write \{cluster\} once"):
        compile_cluster_template(template)
