"""The smallest program that the `command` evaluator can run: it scores a directory by what lies in it."""

import json
import os
from pathlib import Path

if __name__ == "__main__":
    files = sorted(path.name for path in Path(os.environ["MILES_WEIGHTS"]).iterdir())
    print(json.dumps({"scores": {"not-empty": float(bool(files)), "version": float(os.environ["MILES_VERSION"])}}))
