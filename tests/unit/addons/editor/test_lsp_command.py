"""`lsp` on the command line: what it says where its library is missing."""

import sys

from lictor.cli import exit_codes


def test_without_pygls_it_says_how_to_install_it(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    assert exit_codes.run(["lsp"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "pip install 'lictor[editor]'" in err
