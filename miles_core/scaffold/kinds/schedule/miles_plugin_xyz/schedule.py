"""A synchronous schedule with a warm-up."""

from miles_core import BuildContext, Pace

from miles_plugin_xyz.options import XyzOptions


class XyzSchedule:
    """The groups of one step are made, then trained on; publications become rarer. See `miles_core.Schedule`."""

    pace = Pace()

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self.group_size = options.group_size
        self.groups_per_step = options.groups_per_step
        self._warm_up = options.warm_up
        self._every = options.every

    def reach(self, step: int, taken: bool) -> int | None:
        """Batches 0 to `step` may be made: nothing runs ahead of the trainer."""
        return step + 1

    def publishes(self, step: int) -> bool:
        """`step` batches have been trained, from 1."""
        return step <= self._warm_up or (step - self._warm_up) % self._every == 0
