"""Every error lictor raises, as a tree.

LictorError
├── PolicyError              the document is invalid; its author must correct it
│   ├── LoadError            not readable as YAML, or not the expected shape
│   └── CompileError         readable, but an expression or field is invalid
│       ├── SyntaxFaultError     an expression does not parse; has the position
│       └── ModuleError          a Wasm module that is no policy, or needs an unknown host function
├── EvaluationError          the policy is valid, but this request cannot be evaluated
│   ├── UnknownKeyError      a variable or field does not exist
│   ├── BrokenVariableError  a variable cannot be computed; never treated as null
│   ├── FunctionError        invalid argument of a function
│   └── GuestError           a Wasm policy trapped, failed, or returned an invalid response
│       └── GuestTimeError       it exceeded its time limit
├── HostCallError            a host call of a Wasm policy was denied or failed; the policy gets it
├── TooLargeError            a value would exceed the memory limit; never treated as null
├── LookupFailedError        a cluster, registry or service did not answer
│   ├── BlockedAddressError  connecting to this address is not allowed (docs/operate/security.md)
│   ├── UnknownHostError     a host name has no addresses
│   ├── ImageNotFoundError   the registry has no such image, tag or content
│   ├── CorruptContentError  the registry sent bytes that do not match their digest
│   ├── OtherThreadError     a blocking call on the event loop; the rule is evaluated on a thread
│   ├── NotProvidedError     no cluster or registry here, and no value given explicitly
│   └── ApiError             the API server refused; has its status, reason and details
│       ├── NotFoundError        no such object, or no such kind
│       ├── ConflictError        the object exists already or was changed since
│       ├── GoneError            the resource version expired: list again
│       ├── UnreachableError     no response: network, TLS, timeout
│       └── OutOfBoundsError     outside the bounds of the policy; the API server was not called
├── SignatureRefusedError    a signature or attestation does not prove what the policy requires
├── RefusedRequestError      the embedded API server refuses a request with a Status
│   └── UndecodableObjectError   the body is no object of its kind
├── UndeliveredError         a notification was not delivered; has whether and when to retry
├── NotYetError              not available yet; has the seconds to wait
├── DeadlineError            the deadline of this request has passed
│   └── TooSlowError         during evaluation itself, not while waiting for a response
├── SlowRequestError         evaluation takes too long for this process; another one must do it
├── TooManyAttemptsError     too many invalid tokens from one address
├── DataFileError            a data file of lictor is damaged or in use
└── UsageError               invalid arguments

A resource that violates a policy is *not* an error: it is a Result with status FAIL.
"""

import os

from lictor.core.raw import JsonObject


class LictorError(Exception):
    """Base of all errors a caller may catch."""


class PolicyError(LictorError):
    """A document that its author must correct; carries the location.

    `code` and `arguments` identify the problem for callers that format their own message.
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
    """A Wasm module that cannot run: invalid, no policy, or with unknown imports."""


class EvaluationError(LictorError):
    """A compiled rule cannot be evaluated for one request."""


class UnknownKeyError(EvaluationError):
    """A variable or field does not exist."""


class BrokenVariableError(EvaluationError):
    """A variable cannot be computed; never treated as null, unlike other errors."""


class FunctionError(EvaluationError):
    """Invalid argument of a function."""


class GuestError(EvaluationError):
    """A Wasm policy gave no valid response: it trapped, reported an error, or returned nonsense."""


class GuestTimeError(GuestError):
    """A Wasm policy exceeded its time limit."""


class HostCallError(LictorError):
    """A host call of a Wasm policy was denied or failed; the policy receives the error."""


class TooLargeError(LictorError):
    """A value would exceed the memory limit; never treated as null, unlike other errors."""


class LookupFailedError(LictorError):
    """Data outside the request could not be fetched."""


class NotProvidedError(LookupFailedError):
    """There is no cluster or registry here, and no value was given explicitly."""


class OtherThreadError(LookupFailedError):
    """A blocking call on the event loop's thread; the rule is evaluated again on another thread."""


class BlockedAddressError(LookupFailedError, OSError):
    """Connecting to this address is not allowed; no other route to it is tried."""


class UnknownHostError(LookupFailedError, OSError):
    """A host name has no addresses."""


class ImageNotFoundError(LookupFailedError):
    """The registry has no such image, tag or content."""


class CorruptContentError(LookupFailedError):
    """The registry sent bytes that do not match the requested digest."""


class SignatureRefusedError(LictorError):
    """A signature or attestation does not prove what the policy requires."""


class ApiError(LookupFailedError):
    """An error response of the API server; `status` is 0 if there was no response.

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
    """The object or the kind does not exist."""


class ConflictError(ApiError):
    """The object exists already, or has changed since it was read."""


class GoneError(ApiError):
    """The resource version or the continue token has expired: list again."""


class UnreachableError(ApiError):
    """No response: network, TLS or timeout."""


class OutOfBoundsError(ApiError):
    """A policy tried to change an object outside its bounds; the API server was not called."""


class RefusedRequestError(LictorError):
    """A refusal of the embedded API server: a Status with this code, reason and details."""

    def __init__(
        self, message: str, *, code: int, reason: str = "", details: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details = details
        # Additional details for the client.
        self.warnings: tuple[str, ...] = ()


class UndecodableObjectError(RefusedRequestError):
    """The body of a request cannot be decoded as an object of the kind."""

    def __init__(self, kind: str, version: str, why: str, *, expected: str = "") -> None:
        told = f'{kind} in version "{version}" cannot be handled as a {expected or kind}: {why}'
        super().__init__(told, code=400, reason="BadRequest")
        self.why = why


class UndeliveredError(LictorError):
    """A notification was not delivered; the message contains no secret.

    `is_final`: a retry would fail too. `is_denied`: authentication or authorization failed.
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
    """Not available yet; retry after this many seconds."""

    def __init__(self, message: str, *, patience: float) -> None:
        super().__init__(message)
        self.patience = patience


class DeadlineError(LictorError):
    """The deadline of this request has passed."""


class TooManyAttemptsError(LictorError):
    """Too many invalid tokens from one address: it is blocked for a while."""


class DataFileError(LictorError):
    """A data file of lictor cannot be used; the message has the file and the fix."""


class TooSlowError(DeadlineError):
    """The deadline passed during evaluation itself, not while waiting for a response."""


class SlowRequestError(LictorError):
    """Evaluating this request would delay others; a process for slow requests must do it."""


class NotCompiledError(LictorError):
    """A mutation made rules match that are not compiled yet."""

    def __init__(self, message: str, *, request: object) -> None:
        super().__init__(message)
        # The request after the mutation; a `Request`, which this module does not know.
        self.request = request


class UsageError(LictorError):
    """Invalid arguments."""


def describe_os_error(error: OSError) -> str:
    """The reason without errno and address, which asyncio adds to the text."""
    # TLS and name resolution errors have other libraries' numbers.
    if error.errno is None or type(error).__module__ != "builtins":
        return str(error)
    return os.strerror(error.errno).lower()
