"""Kyverno's CEL policies (policies.kyverno.io) as records.

The versions v1, v1beta1 and v1alpha1 have the same fields. One record serves a kind and its
namespaced twin: `kind` distinguishes them. An attribute is the snake_case of the YAML name.
"""

from typing import Literal, TypeAlias

import msgspec

from lictor.core.model.cel_policy import (
    DeletingSpec,
    GeneratingSpec,
    ImageValidatingSpec,
    MutatingSpec,
    ValidatingSpec,
)
from lictor.core.model.metadata import Metadata
from lictor.core.raw import Json


class ValidatingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check."""

    api_version: str
    kind: Literal["ValidatingPolicy", "NamespacedValidatingPolicy"]
    metadata: Metadata
    spec: ValidatingSpec
    status: Json = None


class MutatingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change."""

    api_version: str
    kind: Literal["MutatingPolicy", "NamespacedMutatingPolicy"]
    metadata: Metadata
    spec: MutatingSpec
    status: Json = None


class GeneratingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Objects that shall exist because another one does."""

    api_version: str
    kind: Literal["GeneratingPolicy", "NamespacedGeneratingPolicy"]
    metadata: Metadata
    spec: GeneratingSpec
    status: Json = None


class DeletingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A cleanup."""

    api_version: str
    kind: Literal["DeletingPolicy", "NamespacedDeletingPolicy"]
    metadata: Metadata
    spec: DeletingSpec
    status: Json = None


class ImageValidatingPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A check of container images."""

    api_version: str
    kind: Literal["ImageValidatingPolicy", "NamespacedImageValidatingPolicy"]
    metadata: Metadata
    spec: ImageValidatingSpec
    status: Json = None


CelPolicy: TypeAlias = (
    ValidatingPolicy | MutatingPolicy | GeneratingPolicy | DeletingPolicy | ImageValidatingPolicy
)
RECORDS: dict[str, type[msgspec.Struct]] = {
    record.__name__: record
    for record in (
        ValidatingPolicy,
        MutatingPolicy,
        GeneratingPolicy,
        DeletingPolicy,
        ImageValidatingPolicy,
    )
}
