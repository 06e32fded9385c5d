"""Any JSON: the plain, the odd, the huge, the deep, and texts that mean something to somebody."""

from lictor.core.raw import Json
from strategies.source import Source

# Texts that some part of the house reads as more than text.
MEANINGFUL = (
    "", " ", "0", "-0", "1", "-1", "+5", "007", "0x1F", "0b11", "0o14", "1_000", "1e3", "1e400",
    "1e-400", ".5", "5.", "-.inf", ".nan", "NaN", "Infinity", "1E", "12Ei", "9223372036854775807",
    "9223372036854775808", "18446744073709551616", "0.1", "1.0", "true", "True", "yes", "null",
    "~", "1Gi", "1.5Gi", "100m", "-1Ki", "1e4096", "1e-4096", "1e99999", "1n", "0.0000000001",
    "999999999999999999999Ei", "1h", "1h30m", "-5m", "1.5h", "300ms", "1us", "1\u00b5s",
    "9223372036854775807ns", "2562047h47m16.854775808s", "1d", "1.2.3", "v1.2.3", "1.2.3-beta.1",
    ">=1.2.0 <2.0.0", "1.x || 2.x", "!=1.2.3", "1.2.3+build", "01.2.3", "2023-01-02T15:04:05Z",
    "2023-01-02T15:04:05.999999999+07:00", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "Mon Jan _2 15:04:05 2006", "02 Jan 06 15:04 MST", "2006-01-02", "1700000000",
    "* * * * *", "0 0 31 2 *", "*/5 1-3,7 * JAN MON#2", "@daily", "0 0 L * 5L",
    "nginx", "nginx:latest", "ghcr.io/a/b:v1", "a@sha256:" + "0" * 64, "localhost:5000/x",
    "UPPER/case", "registry.k8s.io/pause:3.9@sha256:" + "f" * 64, ":::", "a:b:c", "[::1]:5000/a",
    "https://example.com", "http://10.0.0.1:80/", "http://[::1]/", "http://[", "//", "ftp://a@b:c",
    "*", "?", "?*", "*?", "a*b?c", "**", "!*", "*a*b*c*d*", "\\*", "1-10", "1!-10", "-5--1", "1Gi-2Gi",
    ">1", ">=1Gi", "<5 & >2", "a | b", "!a & !b", "|", "&", "<", ">=", "!", "| a |", ">1h",
    "[a-z]{3}", "(a+)+$", "[[:alpha:]]*", "(?i)x", "\\d+", "[", "(", "a{1,1000}", "(((a{9}){9}){9}){9}",
    "\\C", "\\pN", "${1}", "$1x", "$$", "^$", "(?P<n>a)", "x{2,1}",
    "eyJhIjoxfQ==", "a===", "YQ", '{"a": [1, 2.5, null]}', "[1, 2]", '["a", "b"]', "{", "a: b",
    "- 1\n- 2", "&a [*a]", "a: *b", "!!int x", "--- a\n--- b", "%YAML 1.1\n---\na",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "system:serviceaccount:ns:name",
    "/a/b", "/a/-", "/", "~0~1", "/spec/containers/0/image", "../../x", "./a", "a.b.c", '"a.b".c', "..",
    "$(../x)", "$(./)", "\\$(x)", "<($(a))", "{{ request.object }}", "{{", "}}", "{{}}", "{{ @ }}",
    "\\{{ a }}", "{{- a }}", "{{ {{ a }} }}", "{{{a}}}", "`1`", "'a'", "(name)", "^(x)", "+(x)", "X(x)",
    "=(x)", "<(x)", "()", "((a))", "$patch", "delete", "replace", "default", "kube-system", "Pod",
    "runtime/default", "NET_BIND_SERVICE", "ALL", "RuntimeDefault", "unconfined", "localhost/x",
)  # fmt: skip
WORDS = (
    "a", "b", "name", "spec", "metadata", "labels", "containers", "image", "kind", "app", "team",
    "key", "value", "x-y", "a.b/c", "items", "data", "0", "1", "-1", "-", "ns", "default", "nginx",
)  # fmt: skip
_CHARACTERS = (
    "abcXYZ 0123456789.-_/:*?!<>=&|()[]{}'\"`\\$@#%^,;~+\n\t\r\0\x7f\x85\u00a0\u00e4\u0130\u0131"
    "\u00df\u03c2\u1e9e\ufb01\u2028\u20ac\u4e2d\ufeff\ufffd\ufffe\U0001f600\U0010ffff\u0301\u200d"
)
_SURROGATES = "\ud800\udbff\udc00\udfff"
_UNITS = (
    "a", "9", "{{", "}}", "{{a", "$(a", "((", "[", "(", "*", "?*", "a*", "\\", "'", '"', "`", ".",
    "a.", "|", "||", "&", " ", "\n", "-", "- ", "/", "~", "1h", "0", "x|", "!", "a-", "{", "\u00e4",
    "@", "@:", "]", "[]", "->", " ->", "http://a", "-----BEGIN X-----\n", "\\$(a", "a: ", ",", "_",
)  # fmt: skip
_NUMBERS = (
    0, 1, -1, 2, 3, 7, 10, 80, 443, 1000, 65535, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1,
    -(2**63), 2**63, 2**64, 10**20, 10**30, -(10**40),
)  # fmt: skip
_FLOATS = (
    0.0, -0.0, 0.5, 1.0, 1.5, -2.25, 0.1, 1e-7, 1e-300, 5e-324, 1e15, 1e16, 1e21, 1e22, 123456.789,
    1.7976931348623157e308, 3.4e38, 3.5e38, 2.0**63, -(2.0**63), 1e6, 999999.5,
)  # fmt: skip


def text(source: Source) -> str:
    """A text: most often one that means something."""
    dice = source.random()
    if dice < 0.45:
        return source.pick(MEANINGFUL)
    if dice < 0.75:
        return source.pick(WORDS)
    if dice < 0.85:
        return source.pick(MEANINGFUL) + source.pick(MEANINGFUL)
    return noise(source)


def noise(source: Source, most: int = 12) -> str:
    """Characters in no order; now and then half a surrogate pair."""
    made = "".join([source.pick(_CHARACTERS) for _ in range(source.count(most))])
    return made + source.pick(_SURROGATES) if source.chance(2) else made


def long_text(source: Source) -> str:
    """A short piece again and again: what quadratic readers choke on."""
    unit = source.pick(_UNITS)
    made = unit * (source.randrange(source.pick((200, 1000, 4000, 20_000))) // len(unit) + 1)
    if source.chance(30):
        made = source.pick(MEANINGFUL) + made
    return made + source.pick(MEANINGFUL) if source.chance(50) else made


def large_subject(source: Source) -> dict[str, Json]:
    """Long texts, long lists and wide maps, each under a name."""
    size = source.randrange(1, 1500)
    return {
        "long": long_text(source),
        "other": long_text(source) if source.chance(50) else text(source),
        "many": [{"name": f"n{index}", "value": index} for index in range(size)],
        "words": [source.pick(MEANINGFUL) for _ in range(size)],
        "numbers": [source.pick(_FLOATS) for _ in range(size)],
        "wide": {f"k{index}": str(index) for index in range(size)},
    }


def number(source: Source) -> float:
    """A number, whole or not, of any size but neither NaN nor infinite."""
    dice = source.random()
    if dice < 0.5:
        return source.pick(_NUMBERS)
    if dice < 0.8:
        return source.pick(_FLOATS)
    if dice < 0.98:
        return source.randrange(-100, 1000)
    # Python itself reads and writes no number of more than 4300 digits.
    return int(10 ** source.randrange(20, 4000))


def scalar(source: Source) -> Json:
    """Anything that is neither map nor list."""
    dice = source.random()
    if dice < 0.55:
        return text(source)
    if dice < 0.8:
        return number(source)
    return source.pick((None, True, False))


def key(source: Source) -> str:
    """The key of a map."""
    return source.pick(WORDS) if source.chance(80) else text(source)


def value(source: Source, depth: int = 3) -> Json:
    """Any JSON; `depth` bounds how far maps and lists nest, but for a few that know no bounds."""
    dice = source.random()
    if depth <= 0 or dice < 0.45:
        return scalar(source)
    if dice < 0.72:
        return {key(source): value(source, depth - 1) for _ in range(source.count(5))}
    if dice < 0.995:
        return [value(source, depth - 1) for _ in range(source.count(5))]
    return deep(source)


def mapping(source: Source, depth: int = 3) -> dict[str, Json]:
    """A map of anything."""
    return {key(source): value(source, depth - 1) for _ in range(source.count(6))}


def deep(source: Source) -> Json:
    """Maps and lists in each other, deeper than any stack likes."""
    made: Json = scalar(source)
    for _ in range(source.pick((30, 90, 110, 190, 210, 400, 1100, 3000))):
        made = {"a": made} if source.chance(50) else [made]
    return made


def spoil(source: Source, document: Json, percent: float = 1.5, depth: int = 40) -> Json:
    """A copy in which a few places hold something that does not belong there."""
    if depth == 0:
        return document
    if source.chance(percent):
        return value(source, 2)
    if isinstance(document, dict):
        made = {k: spoil(source, v, percent, depth - 1) for k, v in document.items()}
        if made and source.chance(percent):
            made.pop(source.pick(list(made)))
        if source.chance(percent):
            made[key(source)] = value(source, 1)
        return made
    if isinstance(document, list):
        return [spoil(source, item, percent, depth - 1) for item in document]
    return document
