"""Every error lictor raises, drawn as a tree.

LictorError
├── PolicyError              what the author wrote is wrong; the author must act
│   ├── LoadError            not readable as YAML, or not the shape we know
│   └── CompileError         readable, but an expression or field makes no sense
│       ├── SyntaxFaultError     an expression does not parse; knows the position
│       └── ModuleError          a Wasm module that is no policy, or asks for what no host has
├── EvaluationError          the policy is fine, this request broke it
│   ├── UnknownKeyError      a variable or field that is not there
│   ├── BrokenVariableError  a variable that cannot be computed; never taken for null
│   ├── FunctionError        a function was given something it cannot take
│   └── GuestError           a Wasm policy trapped, failed, or answered what cannot be read
│       └── GuestTimeError       it ran for longer than it may
├── HostCallError            what a Wasm policy asked of its host was refused or failed; it is told
├── TooLargeError            what a rule builds would fill the memory; never taken for null
├── LookupFailedError        the world (cluster, registry, service) did not answer
│   ├── BlockedAddressError  an address that may not be connected to (docs/operate/security.md)
│   ├── UnknownHostError     a name without addresses
│   ├── ImageNotFoundError   the registry has no such image, tag or content
│   ├── CorruptContentError  the registry sent bytes that do not fit their digest
│   ├── OtherThreadError     asked where nobody may wait; the rule is asked again on a thread
│   ├── NotProvidedError     there is no such world here, and no value was given by hand
│   └── ApiError             the API server refused; knows its status, reason and details
│       ├── NotFoundError        no such object, or no such kind
│       ├── ConflictError        someone else was first
│       ├── GoneError            that resource version is too old: list again
│       ├── UnreachableError     no answer at all: network, TLS, time limit
│       └── OutOfBoundsError     a policy may not touch that; the API server was not asked
├── SignatureRefusedError    a signature or attestation that does not prove what is asked; says why
├── RefusedRequestError      what a client of the embedded API server gets as a Status
│   └── UndecodableObjectError   an object that its kind cannot be read from
├── UndeliveredError         a notification did not arrive; knows whether it ever can, and when
├── NotYetError              what was announced is not there yet; knows how long to wait for it
├── DeadlineError            the time for this request is over
│   └── TooSlowError         judging itself took it; nobody outside was waited for
├── SlowRequestError         judging takes longer than others can wait here; another process must
├── TooManyAttemptsError     from one address too many tokens came that do not count
├── DataFileError            a file in which lictor keeps its own data is broken or in use
└── UsageError               the program was called in a way that makes no sense

A resource that breaks a policy is *not* an error: it is a Result with status FAIL.
"""

import os

from lictor.core.raw import JsonObject


class LictorError(Exception):
    """Base of all errors a caller may catch."""


class PolicyError(LictorError):
    """A document its author must correct; says where.

    `code` and `arguments` say what exactly is wrong to those who word it in their own way.
    """

    def __init__(
        self, message: str, *, where: str = "", code: str = "", arguments: tuple[str, ...] = ()
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where
        self.code = code
        self.arguments = arguments


class LoadError(PolicyError):
    """The document is not YAML, or not of the expected shape."""


class CompileError(PolicyError):
    """The document is well-formed but cannot be turned into a program."""


class SyntaxFaultError(CompileError):
    """An expression that does not parse; `position` is the offset of the fault in `text`."""

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        position: int = 0,
        where: str = "",
        code: str = "",
        arguments: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, where=where, code=code, arguments=arguments)
        self.text = text
        self.position = position


class ModuleError(CompileError):
    """A Wasm module that cannot be run: no module, no policy, or in need of what no host has."""


class EvaluationError(LictorError):
    """A compiled rule could not decide about one request."""


class UnknownKeyError(EvaluationError):
    """A variable or a field that is not there."""


class BrokenVariableError(EvaluationError):
    """A variable cannot be computed. Not forgiven where other faults count as null."""


class FunctionError(EvaluationError):
    """A function was given something it cannot take."""


class GuestError(EvaluationError):
    """A Wasm policy that gave no answer: it trapped, said so itself, or answered nonsense."""


class GuestTimeError(GuestError):
    """A Wasm policy that ran for longer than it may."""


class HostCallError(LictorError):
    """What a Wasm policy asked of its host was refused, or went wrong; the policy is told."""


class TooLargeError(LictorError):
    """What a rule builds would fill the memory. Not forgiven where other faults count as null."""


class LookupFailedError(LictorError):
    """Data outside the request could not be fetched."""


class NotProvidedError(LookupFailedError):
    """There is nothing to ask (no cluster, no registry), and no value was given by hand."""


class OtherThreadError(LookupFailedError):
    """Asked on the thread that answers requests, which must not wait: asked again elsewhere."""


class BlockedAddressError(LookupFailedError, OSError):
    """An address that may not be connected to: no other way to it is tried."""


class UnknownHostError(LookupFailedError, OSError):
    """A name without addresses."""


class ImageNotFoundError(LookupFailedError):
    """The registry answers, and has no such image, tag or content."""


class CorruptContentError(LookupFailedError):
    """The registry answers with bytes that do not fit the digest they were asked by."""


class SignatureRefusedError(LictorError):
    """A signature or attestation that does not prove what is asked for; the message says why."""


class ApiError(LookupFailedError):
    """An answer of the API server that is no success; `status` is 0 where there was none.

    `causes` are the reasons in the details of its Status.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.causes: frozenset[str] = frozenset()


class NotFoundError(ApiError):
    """There is no such object, or no such kind."""


class ConflictError(ApiError):
    """Someone else was first: the object exists already, or has changed since it was read."""


class GoneError(ApiError):
    """The resource version or the page is too old: everything must be listed again."""


class UnreachableError(ApiError):
    """No answer at all: the network, TLS, or the time limit."""


class OutOfBoundsError(ApiError):
    """A policy wants to change what lies outside of its reach; nobody was asked."""


class RefusedRequestError(LictorError):
    """The embedded API server says no; becomes a Status with this code, reason and details."""

    def __init__(
        self, message: str, *, code: int, reason: str = "", details: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details = details
        # What else the client is told.
        self.warnings: tuple[str, ...] = ()


class UndecodableObjectError(RefusedRequestError):
    """What the embedded API server was sent cannot be decoded as an object of the kind."""

    def __init__(self, kind: str, version: str, why: str, *, expected: str = "") -> None:
        told = f'{kind} in version "{version}" cannot be handled as a {expected or kind}: {why}'
        super().__init__(told, code=400, reason="BadRequest")
        self.why = why


class UndeliveredError(LictorError):
    """A notification that did not arrive; the message holds no secret.

    `is_final`: the same would be refused again. `is_denied`: who sends is not known or may not.
    """

    def __init__(
        self,
        message: str,
        *,
        is_final: bool = False,
        is_denied: bool = False,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.is_denied = is_denied
        self.retry_after = retry_after


class NotYetError(LictorError):
    """What was announced is not there yet; it is worth so many seconds to ask again."""

    def __init__(self, message: str, *, patience: float) -> None:
        super().__init__(message)
        self.patience = patience


class DeadlineError(LictorError):
    """The time for this request is over."""


class TooManyAttemptsError(LictorError):
    """From one address too many tokens came that do not count: none is looked at for a while."""


class DataFileError(LictorError):
    """A file in which lictor keeps its own data cannot be used; says which, and what to do."""


class TooSlowError(DeadlineError):
    """Judging itself took all the time: nobody outside was waited for."""


class SlowRequestError(LictorError):
    """Judging this request would keep others waiting; a process for slow requests must do it."""


class NotCompiledError(LictorError):
    """A mutation moved the object to where rules concern it that nobody has compiled yet."""

    def __init__(self, message: str, *, request: object) -> None:
        super().__init__(message)
        # As the mutation left it; whoever compiles knows the type.
        self.request = request


class UsageError(LictorError):
    """The program was called in a way that makes no sense."""


def describe_os_error(error: OSError) -> str:
    """The reason without its number: asyncio puts addresses into the text of the error."""
    # Errors of TLS and of name lookups have numbers of other libraries.
    if error.errno is None or type(error).__module__ != "builtins":
        return str(error)
    return os.strerror(error.errno).lower()
