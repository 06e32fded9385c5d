"""Write `src/lictor/images/sigstore_root.json`: with which keys trust in Sigstore begins.

    python scripts/update_sigstore_root.py ROOT_JSON

ROOT_JSON is a file of TUF root metadata of the public Sigstore that you trust, such as the one in
the Python package `sigstore` (`sigstore/_store/.../root.json`). Newer roots are found from it by
themselves, each signed with the keys of the one before; a new file saves those steps. It is refused
where it is not signed as the present file demands.
"""

import sys
from pathlib import Path

from tuf.api._payload import Root
from tuf.api.metadata import Metadata

_FILE = Path(__file__).parent.parent / "src" / "lictor" / "images" / "sigstore_root.json"


def main(path: str) -> None:
    """Replace the file, where the new one is signed as the old one demands."""
    content = Path(path).read_bytes()
    new = Metadata[Root].from_bytes(content)
    new.signed.verify_delegate(Root.type, new.signed_bytes, new.signatures)
    if _FILE.exists():
        old = Metadata[Root].from_bytes(_FILE.read_bytes())
        if new.signed.version < old.signed.version:
            sys.exit(f"{path} is older than {_FILE}")
        old.signed.verify_delegate(Root.type, new.signed_bytes, new.signatures)
    _FILE.write_bytes(content)
    print(f"{_FILE}: version {new.signed.version}, until {new.signed.expires}")


if __name__ == "__main__":
    main(sys.argv[1])
