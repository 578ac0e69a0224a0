"""The console script `miles`: a fast path by the arguments alone, then the whole command line.

What people and shells call all the time (`--version`, `plugins list`) must not wait for the parser, so this module
imports nothing until it knows what was asked.
"""

import sys


def main() -> int:
    """Run the command of `sys.argv` and return its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--version"]:
        from miles_core import __version__

        sys.stdout.write(f"miles {__version__}\n")
        return 0
    if arguments[:2] == ["plugins", "list"] and {*arguments[2:]} <= {"--json", "--all", "--requirements"}:
        from miles_core.cli.plugin_list import list_plugins

        words = arguments[2:]
        return list_plugins(
            everything="--all" in words, requirements="--requirements" in words, as_json="--json" in words
        )
    import gc
    import os

    # pydantic looks for plugins of its own in every distribution, and dies of one whose metadata is damaged
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    gc.disable()  # what imports make is no garbage, and looking for some takes a tenth of `miles --help`
    from miles_core.cli.guard import guarded

    return guarded(arguments)


if __name__ == "__main__":
    sys.exit(main())
