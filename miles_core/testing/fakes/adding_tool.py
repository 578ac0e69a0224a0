"""A tool of one line, for examples and tests."""


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b
