"""Write which number each field of a built-in type has in protobuf, from Kubernetes' Go modules.

    python scripts/make_wire_numbers.py ~/go/pkg/mod/k8s.io 0.35.4

Names and forms of fields are in `src/lictor/lang/kind_schemas.json`; this table adds what is needed
to read them off the wire. One line per type, its fields one after the other:

    3replicas          field 3
    1*replicas         a pointer: 0, false and empty mean something, as they were set
    2=data             bytes, which are base64 in JSON
    2~core.v1.Handler  not a field, but a message whose fields are fields of this one
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "src/lictor/apiserver/wire_numbers.json"
SCHEMAS = ROOT / "src/lictor/lang/kind_schemas.json"
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^\s*(?:type )?(\w+) = (v\w+)\.(\w+)$", re.MULTILINE)
FIELD = re.compile(
    r"^\t(?:(\w+)[ \t]+)?([\w.*\[\]]+)[ \t]+`json:\"([\w$-]*)(,[^\"]*)?\""
    r"(?:[^`]*?)protobuf:\"\w+,(\d+),",
    re.MULTILINE,
)


def main() -> None:
    """Read the modules, and write the table."""
    modules, version = Path(sys.argv[1]).expanduser(), sys.argv[2]
    structs: dict = {}
    api = modules / f"api@v{version}"
    for path in sorted(api.glob("*/v*/types.go")):
        structs |= read_structs(path, f"{path.parent.parent.name}.{path.parent.name}")
    meta = modules / f"apimachinery@v{version}/pkg/apis/meta/v1/types.go"
    structs |= read_structs(meta, "meta.v1")
    structs = {
        name: structs.get(found) if isinstance(found, str) else found
        for name, found in structs.items()
    }
    structs = {name: found for name, found in structs.items() if isinstance(found, list)}
    wanted = list_wanted(structs)
    lines = [f" {json.dumps(name)}: {json.dumps(write(structs[name]))}" for name in sorted(wanted)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{TARGET}: {len(wanted)} types")


def read_structs(path: Path, package: str) -> dict:
    """The fields of all structs of a file; the other name of one that has two."""
    text = re.sub(r"^\s*//.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict = {}
    for name, body in STRUCT.findall(text):
        fields = [read_field(match, package) for match in FIELD.finditer(body)]
        if fields:
            found[f"{package}.{name}"] = fields
    group = package.partition(".")[0]
    for name, version, target in ALIAS.findall(text):
        found[f"{package}.{name}"] = f"{group}.{version}.{target}"
    return found


def read_field(match: re.Match, package: str) -> tuple[int, str, str, bool]:
    """Number, JSON name, Go type, and whether the fields of that type are fields of this one."""
    _, kind, name, options, number = match.groups()
    inline = not name and "inline" in (options or "")
    if inline and "." not in kind:
        kind = f"{package}.{kind}"
    return int(number), name, kind, inline


def list_wanted(structs: dict) -> set[str]:
    """Types that the other table knows, and those that are part of them."""
    schemas = json.loads(SCHEMAS.read_text(encoding="utf-8"))["types"]
    wanted = {name for name in schemas if name in structs}
    waiting = list(wanted)
    while waiting:
        for _, _, kind, inline in structs[waiting.pop()]:
            if inline and kind in structs and kind not in wanted:
                wanted.add(kind)
                waiting.append(kind)
    return wanted


def write(fields: list[tuple[int, str, str, bool]]) -> str:
    """One type."""
    words = []
    for number, name, kind, inline in sorted(fields):
        if inline:
            words.append(f"{number}~{kind}")
        elif "[]byte" in kind:
            words.append(f"{number}={name}")
        else:
            words.append(f"{number}{'*' if kind.startswith('*') else ''}{name}")
    return " ".join(words)


if __name__ == "__main__":
    main()
