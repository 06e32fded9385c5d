"""What is due when? Objects by the moment at which their time to live is over."""

import heapq
from datetime import datetime
from typing import TypeAlias

import msgspec

from lictor.cluster.resource import Resource


class Mortal(msgspec.Struct, frozen=True, order=True):
    """An object with a time to live."""

    resource: Resource
    namespace: str
    name: str


_Entry: TypeAlias = tuple[datetime, int, Mortal]

# Entries of objects that have been moved or dropped stay in the heap for a while; so many may.
_SLACK = 1000


class Agenda:
    """Any number of objects; the next one is found without looking at the others."""

    def __init__(self) -> None:
        self._moments: dict[Mortal, datetime] = {}
        self._heap: list[_Entry] = []
        # Of two objects with the same moment the one that came first.
        self._count = 0

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, mortal: object) -> bool:
        return mortal in self._moments

    def put(self, mortal: Mortal, moment: datetime) -> bool:
        """Note an object, or move it; False where nothing has changed."""
        if self._moments.get(mortal) == moment:
            return False
        self._moments[mortal] = moment
        self._push(moment, mortal)
        if len(self._heap) > 2 * len(self._moments) + _SLACK:
            self._rebuild()
        return True

    def drop(self, mortal: Mortal) -> None:
        """Forget an object."""
        self._moments.pop(mortal, None)

    def drop_all(self, resource: Resource) -> None:
        """Forget all objects of a collection."""
        kept = {key: value for key, value in self._moments.items() if key.resource != resource}
        self._moments = kept
        self._rebuild()

    @property
    def next_moment(self) -> datetime | None:
        """When the next object is due."""
        self._skip()
        return self._heap[0][0] if self._heap else None

    def take(self, now: datetime, limit: int) -> list[Mortal]:
        """Those that are due, the earliest first, so many at most; they are forgotten."""
        taken: list[Mortal] = []
        while len(taken) < limit:
            self._skip()
            if not self._heap or self._heap[0][0] > now:
                break
            mortal = heapq.heappop(self._heap)[2]
            del self._moments[mortal]
            taken.append(mortal)
        return taken

    def _skip(self) -> None:
        while self._heap and self._moments.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def _push(self, moment: datetime, mortal: Mortal) -> None:
        self._count += 1
        heapq.heappush(self._heap, (moment, self._count, mortal))

    def _rebuild(self) -> None:
        self._heap = []
        for mortal, moment in self._moments.items():
            self._push(moment, mortal)
