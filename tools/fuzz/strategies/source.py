"""Chance that can be repeated: the same seed makes the same input, today and in a year."""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Maker = Callable[["Source"], Item]


class Source(random.Random):
    """Random numbers with the questions that makers of inputs ask."""

    def chance(self, percent: float) -> bool:
        return self.random() * 100 < percent

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self.random() * len(items))]

    def count(self, most: int) -> int:
        """A number from 0 to `most`, small ones more often."""
        return int(self.random() * self.random() * (most + 1))

    def make(self, makers: Sequence[Maker[Item]]) -> Item:
        return self.pick(makers)(self)

    def several(self, maker: Maker[Item], most: int = 3, least: int = 0) -> list[Item]:
        return [maker(self) for _ in range(least + self.count(most - least))]

    def subset(self, items: Sequence[Item], percent: float = 50) -> list[Item]:
        return [item for item in items if self.chance(percent)]
