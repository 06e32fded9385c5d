"""Version constants, so that reading them needs no import of package metadata."""

VERSION = "0.1.0"
# Set by the image build; unknown in a source tree.
BUILT_AT = "---"
COMMIT = "---"
# The image that `make image` builds. Without a registry: there is no public image of lictor, and
# a name that a third party could register would be unsafe.
DEFAULT_IMAGE = f"lictor:{VERSION}"
# The releases whose behaviour lictor follows; generators, tests and documents read them here.
REFERENCES = {
    "kyverno": "v1.19.1",
    "kubernetes": "v1.37.1",
    "kubewarden": "v1.36.0",
    "opa": "v1.17.1",
}


def render_version() -> str:
    """The three lines of `version`, ending in a newline."""
    return f"Version: {VERSION}\nTime: {BUILT_AT}\nGit commit ID: {COMMIT}\n"
