"""Programs that scripts of tests call by name and that are not on every machine."""

import shlex
import sys
from pathlib import Path

_EVICT = """#!/bin/sh
# kubectl evict POD [-n NAMESPACE]
namespace=default
while [ $# -gt 0 ]; do
  case "$1" in
    -n|--namespace) namespace=$2; shift ;;
    *) pod=$1 ;;
  esac
  shift
done
printf '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"%s"}}' \\
  "$pod" "$namespace" |
  kubectl create --raw "/api/v1/namespaces/$namespace/pods/$pod/eviction" -f -
"""


def write_tools(folder: Path) -> Path:
    """Put the programs into a folder, for the front of PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    lictor = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m lictor "$@"\n'
    for name, text in (("kyverno", lictor), ("kubectl-kyverno", lictor), ("kubectl-evict", _EVICT)):
        file = folder / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    return folder
