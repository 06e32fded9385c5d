"""Checks that the kinds in match, mutation targets and generate rules exist."""

from collections.abc import Iterable, Iterator

from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.match import known_kinds, list_filters
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.schema_variables import parse_api_path

_CHECK = "unknown-resource"


def check_matched_kinds(holder: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    """The kinds in `match` and `exclude`, built-in and of the given definitions."""
    for name in ("match", "exclude"):
        for each in list_filters(holder[name]):
            for part in each["resources"]["kinds"].each():
                yield from _check_selector(part, schemas)


def _check_selector(part: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    selector = parse_kind_selector(part.text)
    if not selector.kind or has_wildcard(selector.kind):
        return
    custom = schemas.list_custom(selector.group)
    if selector.kind in custom:
        yield from _check_version(part, selector, custom[selector.kind])
    elif selector.kind not in known_kinds():
        meant = _suggest_kind(selector.kind, (*known_kinds(), *schemas.list_custom()))
        # The group of a definition means one of its kinds.
        is_near = custom and selector.group != "*"
        meant = meant or (suggest(selector.kind, custom) if is_near else "")
        if meant:
            message = (
                f'there is no kind "{selector.kind}": kinds are written in CamelCase, and in '
                "singular"
            )
            yield flag(_CHECK, part.path, message, meant)


def _check_version(part: Field, selector: KindSelector, versions: list[str]) -> Iterator[Finding]:
    """A version that the definition of a kind does not have."""
    wanted, kind = selector.version, selector.kind
    if kind in known_kinds() or has_wildcard(wanted) or wanted in versions:
        return
    meant = versions[0] if len(versions) == 1 else suggest(wanted, versions)
    whole = part.text.replace(f"{wanted}/", f"{meant}/", 1) if meant else ""
    yield flag(_CHECK, part.path, f'{kind} has no version "{wanted}"', whole)


def _suggest_kind(kind: str, known: Iterable[str]) -> str:
    """A known kind that differs only in case or plural, or by one typo."""
    folded, names = kind.lower(), tuple(known)
    for name in names:
        if folded in (name.lower(), f"{name.lower()}s", f"{name.lower()}es"):
            return name
    # Of a long word, also two transposed letters.
    cutoff = 0.88 if len(kind) > 7 else 0.93
    return suggest(kind, names, cutoff) if len(kind) > 5 else ""


def check_target_kind(target: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    """A kind that its group does not have, if the kinds of the group are known."""
    api_version, kind = target["apiVersion"].text, target["kind"].text
    group = api_version.rpartition("/")[0]
    if not kind or not is_plain(kind) or schemas.has_custom(api_version, kind):
        return
    custom = schemas.list_custom(group)
    known = {name for name, groups in known_kinds().items() if group in groups}
    if builtin_names().knows_group(group):
        if kind not in known:
            yield _flag_absent(target, {*known, *custom})
    elif kind in custom and is_plain(api_version):
        message = f'{kind} has no version "{api_version.rpartition("/")[2]}"'
        meant = f"{group}/{custom[kind][0]}" if len(custom[kind]) == 1 else ""
        yield flag(_CHECK, target["apiVersion"].path, message, meant)
    elif suggest(kind, custom):
        # Definitions may be missing: only a similar name is a typo.
        message = f'{group} has no kind "{kind}"'
        yield flag(_CHECK, target["kind"].path, message, suggest(kind, custom))


def _flag_absent(target: Field, known: Iterable[str]) -> Finding:
    group, kind = target["apiVersion"].text.rpartition("/")[0], target["kind"].text
    elsewhere = [other for other in known_kinds().get(kind, {}) if other]
    message = f'{group or "v1"} has no kind "{kind}"'
    if elsewhere:
        message += f'; "{elsewhere[0]}" has one'
    meant = "" if elsewhere else suggest(kind, known) or suggest(kind, known_kinds())
    return flag(_CHECK, target["kind"].path, message, meant)


def check_called_resource(url_path: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    """A resource that the API server does not have, if those of its group are known."""
    path = parse_api_path(url_path.text)
    if path is None or not path.is_plain or not builtin_names().knows_group(path.group):
        return
    if schemas.names.of_resource(path.group, path.version, path.resource) is None:
        known = [each.resource for each in schemas.names.known if each.group == path.group]
        message = f'there is no resource "{path.resource}" in the group "{path.group}"'
        yield flag(_CHECK, url_path.path, message, suggest(path.resource, known))


def is_plain(text: str) -> bool:
    """A text that holds neither variables nor wildcards."""
    return "{{" not in text and "$(" not in text and not has_wildcard(text)
