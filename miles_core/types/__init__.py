"""What travels round the ring: plain frozen values, numpy arrays, no I/O and no behaviour beyond self-checks."""
