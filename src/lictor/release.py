"""Which lictor is this? Constants, so that asking costs no import of package metadata."""

VERSION = "0.1.0"
# Set by the build that makes an image; a source tree does not know them.
BUILT_AT = "---"
COMMIT = "---"


def render_version() -> str:
    """The three lines of `version`, ending in a newline."""
    return f"Version: {VERSION}\nTime: {BUILT_AT}\nGit commit ID: {COMMIT}\n"
