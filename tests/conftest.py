"""The tests interrupt children with SIGINT, which a shell that starts tests in the background lets them ignore."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
