"""Making failed attempts again."""

import logging

from miles_core import Attempt, BuildContext, GenerateContext, GeneratorMiddleware, MilesError, Trajectory

from miles_plugin_xyz.options import XyzOptions

log = logging.getLogger(__name__)


class XyzMiddleware(GeneratorMiddleware):
    """Stands around the generator `self.inner`. See `miles_core.Middleware`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._times = options.times
        self._pause = options.pause

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        for time in range(1, self._times + 1):
            try:
                return await self.inner.generate(attempt, context)
            except MilesError:
                raise
            except Exception:
                log.warning("attempt %s failed; repetition %d follows", attempt.id, time, exc_info=True)
                await context.clock.sleep(self._pause)
        return await self.inner.generate(attempt, context)
