"""`apply`, all but the printing: policies compiled once, documents judged one by one."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lictor.engine import Engine
from lictor.errors import LictorError
from lictor.model.result import Verdict
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.parallel import choose_processes, map_chunks, split_evenly
from lictor.offline.payloads import parse_payloads
from lictor.offline.pieces import Piece, PieceOptions, compile_pieces
from lictor.offline.policies import GivenExceptions, LoadedPolicies
from lictor.offline.programs import compile_for_payloads, compile_given, watch_for_guesses
from lictor.offline.requests import World
from lictor.offline.resources import Span, find_documents, parse_resources
from lictor.offline.sources import Text
from lictor.ports import Lookups
from lictor.report.summary import Counts

_CHUNK_SIZE = 25
# Resources are trees without cycles: looking for garbage more often finds nothing.
_COLLECT_AFTER = 100_000


class Place(msgspec.Struct, frozen=True):
    """Where a document is: which text, and where in it; and what is judged there."""

    text: int
    span: Span
    # Empty for resources; for payloads the mode of the policies that judge them.
    mode: str = ""


class Judged(msgspec.Struct, frozen=True):
    """One document's pieces, where it is, and why it could not be judged if so."""

    # None where it comes from no file.
    place: Place | None
    pieces: tuple[Piece, ...] = ()
    problem: str = ""
    # Things to tell once, however many documents they are about.
    notes: tuple[str, ...] = ()


class ApplyPlan(msgspec.Struct, frozen=True):
    """What to judge, by what, and how."""

    policies: LoadedPolicies
    texts: tuple[Text, ...]
    world: World
    given: GivenObjects = msgspec.field(default_factory=GivenObjects)
    exceptions: GivenExceptions = GivenExceptions()
    # Texts that are no resources, by the mode of the policies that judge them.
    payloads: Mapping[str, tuple[Text, ...]] = msgspec.field(default_factory=dict)
    continue_on_fail: bool = False
    # Zero: as many processes as pay off.
    processes: int = 0
    # Who answers what policies ask; None: the values and the given objects.
    lookups: Lookups | None = None


class Application:
    """Judges documents; made once for each run."""

    def __init__(self, plan: ApplyPlan, options: PieceOptions) -> None:
        self._plan = plan
        self._make_piece = compile_pieces(options)
        self._engines = _make_engines(plan)
        self._tell_guess = watch_for_guesses(plan.policies, plan.given)
        sources = [("", plan.texts), *plan.payloads.items()]
        self.texts = tuple(text for _, texts in sources for text in texts)
        modes = [mode for mode, texts in sources for _ in texts]
        self.places = [
            Place(index, span, mode)
            for index, (text, mode) in enumerate(zip(self.texts, modes, strict=True))
            for span in find_documents(text.content)
        ]

    @property
    def count(self) -> int:
        """How many documents are judged."""
        return len(self.places)

    @property
    def rule_count(self) -> int:
        """How many rules judge: those of classic policies, and each policy in CEL as one."""
        programs = self._engines[""].programs
        classic = [p for p in programs if p.policy.kind in ("ClusterPolicy", "Policy")]
        return sum(len(program.rules) for program in classic) + len(self._plan.policies.cel)

    @property
    def unusable_count(self) -> Counts:
        """What policies that cannot be used add to the counts: an error each."""
        return Counts(errors=len(self._plan.policies.unusable))

    def run(self) -> Iterator[Judged]:
        """Judge every document, in order; memory does not grow with their number."""
        chunks = split_evenly(self.places, _CHUNK_SIZE)
        processes = choose_processes(len(self.places), self._plan.processes)
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        for answers in map_chunks(self._judge_chunk, chunks, processes):
            yield from answers

    def _judge_chunk(self, places: Sequence[Place]) -> list[Judged]:
        return [self._judge(place) for place in places]

    def _judge(self, place: Place) -> Judged:
        text = self.texts[place.text]
        notes: list[str] = []
        try:
            verdicts = list(self._judge_text(text, place, notes))
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return Judged(place, problem=str(error))
        return Judged(place, tuple(map(self._make_piece, verdicts)), notes=tuple(notes))

    def _judge_text(self, text: Text, place: Place, notes: list[str]) -> Iterator[Verdict]:
        if place.mode:
            engine = self._engines[place.mode]
            part = Text(text.path, text.content[place.span.start : place.span.end])
            yield from (
                engine.evaluate(payload.make_request(place.mode))
                for payload in parse_payloads(part)
            )
            return
        world, engine = self._plan.world, self._engines[""]
        adapt = world.adapt
        for resource in parse_resources(text.content, place.span, text.path):
            request = world.make_request(resource)
            note = self._tell_guess(request.kind)
            if note:
                notes.append(note)
            yield engine.evaluate(request, adapt=adapt)


def _make_engines(plan: ApplyPlan) -> dict[str, Engine]:
    """The engine for resources, and one for each kind of payload."""
    lookups = plan.lookups or OfflineLookups(plan.world.values, plan.given)
    policies, exceptions, given = plan.policies, plan.exceptions, plan.given
    engines = {"": Engine(compile_given(policies, exceptions, lookups, given))}
    for mode in plan.payloads:
        chosen = policies.cel.of_mode(mode)
        engines[mode] = Engine(compile_for_payloads(chosen, exceptions, lookups, given))
    return engines


def select_documents(texts: Iterable[Text], word: bytes) -> Iterator[Text]:
    """The documents that hold a word, each as a text of its own; nothing is parsed."""
    for text in texts:
        for span in find_documents(text.content):
            part = text.content[span.start : span.end]
            if word in part:
                yield Text(text.path, part)
