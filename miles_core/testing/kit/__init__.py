"""The conformance kit: what every plugin, and every component of a kind, must keep; each promise is one check."""
