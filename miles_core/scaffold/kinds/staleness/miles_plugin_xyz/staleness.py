"""A limit on the age of groups."""

from miles_core import BuildContext, Group, Verdict

from miles_plugin_xyz.options import XyzOptions


class XyzStaleness:
    """Keeps groups up to an age, in weight versions. See `miles_core.Staleness`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._max_age = options.max_age

    def judge(self, group: Group, version: int) -> Verdict:
        if group.oldest_version is None:  # no engine sampled it: it cannot grow old
            return Verdict(True)
        age = version - group.oldest_version
        return Verdict(True) if age <= self._max_age else Verdict(False, f"age {age}")
