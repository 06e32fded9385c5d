"""The program: `python -m lictor` and the `lictor` script come in here."""

import sys


def main() -> int:
    """Run the command line and give the exit code."""
    arguments = sys.argv[1:]
    if arguments == ["version"]:
        # Editors and pipelines ask for the version often: answer before anything else is imported.
        from lictor.core.release import render_version

        try:
            sys.stdout.write(render_version())
            sys.stdout.flush()
        except OSError:
            pass  # The command line below meets it again, and knows what to say.
        else:
            return 0
    from lictor.cli.exit_codes import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
