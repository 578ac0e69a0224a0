"""The environment: a secret number, and hints."""

import re


class Game:
    """Knows nothing of models. Raises ValueError for a secret that is no number."""

    def __init__(self, secret: str | None) -> None:
        if secret is None or not re.fullmatch(r"-?\d+", secret):
            raise ValueError(f"the secret is {secret!r}, expected a task whose answer is a whole number")
        self._secret = int(secret)

    def guess(self, text: str) -> str | None:
        """What to tell the player; None for a right guess. The first number in the text counts."""
        found = re.search(r"-?\d{1,9}", text)
        if found is None:
            return "Name a number."
        if int(found[0]) == self._secret:
            return None
        return "Higher." if int(found[0]) < self._secret else "Lower."
