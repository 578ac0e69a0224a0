"""Fakes for plugin authors: a scripted engine, a clock, a two-line dataset."""
