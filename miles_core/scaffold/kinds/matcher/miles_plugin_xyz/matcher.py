"""Messages that are equal up to white space."""

from typing import Any

from miles_core import BuildContext, Message

from miles_plugin_xyz.options import XyzOptions


class XyzMatcher:
    """Compares every field; texts, at any depth, without regard to white space. See `miles_core.Matcher`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._ignore_case = options.ignore_case

    def matches(self, stored: Message, replayed: Message) -> bool:
        return bool(self._plain(stored) == self._plain(replayed))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            text = " ".join(value.split())
            return text.lower() if self._ignore_case else text
        if isinstance(value, dict):
            return {key: self._plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(each) for each in value]
        return value
