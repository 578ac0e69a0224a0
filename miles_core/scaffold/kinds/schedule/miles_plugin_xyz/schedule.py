"""A synchronous schedule with a warm-up."""

from miles_core import BuildContext

from miles_plugin_xyz.options import XyzOptions


class XyzSchedule:
    """The groups of one step are made, then trained on; publications become rarer. See `miles_core.Schedule`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self.group_size = options.group_size
        self.groups_per_step = options.groups_per_step
        self._warm_up = options.warm_up
        self._every = options.every

    def grant(self, step: int) -> int:
        return self.groups_per_step

    def publishes(self, step: int) -> bool:
        """`step` batches have been trained, from 1."""
        return step <= self._warm_up or (step - self._warm_up) % self._every == 0
