"""Which lictor is this? Constants, so that asking costs no import of package metadata."""

VERSION = "0.1.0"
# Set by the build that makes an image; a source tree does not know them.
BUILT_AT = "---"
COMMIT = "---"
# What `make image` builds. Without a registry in it: nobody publishes images of lictor for all,
# and a name that others could take would be an invitation.
DEFAULT_IMAGE = f"lictor:{VERSION}"


def render_version() -> str:
    """The three lines of `version`, ending in a newline."""
    return f"Version: {VERSION}\nTime: {BUILT_AT}\nGit commit ID: {COMMIT}\n"
