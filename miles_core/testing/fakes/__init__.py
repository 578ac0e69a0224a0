"""Fakes for plugin authors, one a file. Import them from `miles_core.testing`."""
