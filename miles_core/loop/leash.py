"""Runs a program, and ends its whole process group when whoever holds the other end of a pipe is gone.

    python -I leash.py DESCRIPTOR PROGRAM [ARGUMENT...]

A driver that is killed cannot end what it started. This is a file of the standard library alone, started as a script:
it costs a bare interpreter. It leads the group, and ends as the program ends.
"""

import os
import signal
import subprocess
import sys
import threading
import time

TERM_SECONDS = 2.0


def main() -> None:
    descriptor, program = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: None)  # it is for the program, which may clean up
    try:
        child = subprocess.Popen(program)
    except OSError as error:
        sys.exit(f"cannot be started: {error}")
    threading.Thread(target=_end_with_holder, args=(descriptor,), daemon=True).start()
    code = child.wait()
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _end_with_holder(descriptor: int) -> None:
    """Return never: reading ends when nobody holds the other end any more."""
    os.read(descriptor, 1)
    os.killpg(0, signal.SIGTERM)
    time.sleep(TERM_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
