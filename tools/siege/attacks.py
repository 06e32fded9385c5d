"""From a number to an attack: policies, and the requests that set them off."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from jmespath_texts import ELSEWHERE

from families import cel, classic, cleanup, known, kubewarden

Object = dict[str, Any]
_FAMILIES: tuple[tuple[int, Callable[[Random, str], Object]], ...] = (
    (10, classic.make_policy),
    (5, cel.make_validating),
    (3, cel.make_mutating),
    (3, cel.make_generating),
    (1, cel.make_deleting),
    (1, cleanup.make_cleanup),
    (1, cleanup.make_exception),
    (1, cleanup.make_cel_exception),
    (2, kubewarden.make_admission_policy),
    (2, kubewarden.make_group),
)
SCHEDULED = ("CleanupPolicy", "NamespacedDeletingPolicy")


@dataclass(frozen=True)
class Attack:
    """Policies that are there at the same time, and objects that are created under them."""

    name: str
    policies: tuple[Object, ...]
    triggers: tuple[Object, ...]

    def dump(self) -> str:
        return json.dumps(vars(self), indent=1)


def load_attack(text: str) -> Attack:
    """The opposite of `Attack.dump`."""
    found = json.loads(text)
    return Attack(found["name"], tuple(found["policies"]), tuple(found["triggers"]))


def split_attack(attack: Attack) -> list[Attack]:
    """One attack for each of its policies, to find out which of them does the harm."""
    return [
        Attack(f"{attack.name}-{n}", (p,), attack.triggers) for n, p in enumerate(attack.policies)
    ]


def list_attacks(seed: int, listener: str, first: int = 0) -> Iterator[Attack]:
    """What is known, then what this seed makes, from this number on; without end."""
    for number, policies in enumerate(known.list_known()):
        triggers = _make_triggers(Random(number), -number - 1)
        yield Attack(f"known-{number}", tuple(policies), triggers)
    for number in count(first):
        yield make_attack(seed, number, listener)


def make_attack(seed: int, number: int, listener: str) -> Attack:
    """The attack with this number; the same seed gives the same attacks, but for the listener."""
    random = Random(f"{seed}-{number}")
    weights, makers = [weight for weight, _ in _FAMILIES], [maker for _, maker in _FAMILIES]
    policies = [
        maker(random, f"a{number}-{place}")
        for place, maker in enumerate(random.choices(makers, weights, k=random.randint(1, 3)))
    ]
    text = json.dumps(policies).replace("LISTENER", listener)
    return Attack(f"{seed}-{number}", tuple(json.loads(text)), _make_triggers(random, number))


def _make_triggers(random: Random, number: int) -> tuple[Object, ...]:
    """Small and large objects; what policies read from them leads elsewhere."""
    where = random.choice(ELSEWHERE)
    data = {"where": where, "key": "where", "name": f"../../{where}/secrets/vault", "word": "a"}
    many = {f"k{place}": "a" * 50 for place in range(random.choice((10, 200)))}
    # As large as an object can be stored, in few pieces or in many.
    pieces = random.choice((1, 30, 3000))
    large = {f"k{place}": "a" * (600_000 // pieces) for place in range(pieces)}
    container = {"name": "main", "image": "registry.local/main:1"}
    return (
        _object("ConfigMap", f"t{abs(number)}", data=data),
        _object("ConfigMap", f"m{abs(number)}", data={**many, **data}),
        _object("ConfigMap", f"l{abs(number)}", data={**large, **data}),
        _object("Secret", f"t{abs(number)}", stringData=data),
        _object("Pod", f"t{abs(number)}", spec={"containers": [container]}),
    )


def _object(kind: str, name: str, **body: Any) -> Object:
    metadata = {"name": name, "namespace": "red", "labels": {"where": "blue"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **body}
