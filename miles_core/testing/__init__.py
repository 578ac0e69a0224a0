"""What a plugin's author tests with: fakes, makers of what travels, made-up installations, the conformance kit.

    from miles_core.testing import ScriptedEngine, ManualClock, TwoTasks, CharRenderer, make_group

Names are imported when they are first used (PEP 562). docs/testing.md shows each of them at work.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "miles_core.testing.fakes.char_image_renderer": "CharImageRenderer",
    "miles_core.testing.fakes.char_renderer": "CharRenderer",
    "miles_core.testing.fakes.char_tool_renderer": "CharToolRenderer",
    "miles_core.testing.fakes.chat": "ScriptedChat",
    "miles_core.testing.fakes.chat_episode": "chat_episode",
    "miles_core.testing.fakes.contexts": "make_attempt make_generate_context",
    "miles_core.testing.fakes.engine_log": "Exchange scripted_logprob",
    "miles_core.testing.fakes.makers": "make_batch make_group make_sequence make_task make_trajectory",
    "miles_core.testing.fakes.manual_clock": "ManualClock",
    "miles_core.testing.fakes.png": "make_png",
    "miles_core.testing.fakes.run_recipe": "run_recipe",
    "miles_core.testing.fakes.scripted_engine": "ScriptedEngine",
    "miles_core.testing.fakes.tiny_model": "tiny_model",
    "miles_core.testing.fakes.two_tasks": "TwoTasks",
    "miles_core.testing.installing": "SitePackages",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from miles_core.testing.fakes.char_image_renderer import CharImageRenderer as CharImageRenderer
    from miles_core.testing.fakes.char_renderer import CharRenderer as CharRenderer
    from miles_core.testing.fakes.char_tool_renderer import CharToolRenderer as CharToolRenderer
    from miles_core.testing.fakes.chat import ScriptedChat as ScriptedChat
    from miles_core.testing.fakes.chat_episode import chat_episode as chat_episode
    from miles_core.testing.fakes.contexts import make_attempt as make_attempt
    from miles_core.testing.fakes.contexts import make_generate_context as make_generate_context
    from miles_core.testing.fakes.engine_log import Exchange as Exchange
    from miles_core.testing.fakes.engine_log import scripted_logprob as scripted_logprob
    from miles_core.testing.fakes.makers import make_batch as make_batch
    from miles_core.testing.fakes.makers import make_group as make_group
    from miles_core.testing.fakes.makers import make_sequence as make_sequence
    from miles_core.testing.fakes.makers import make_task as make_task
    from miles_core.testing.fakes.makers import make_trajectory as make_trajectory
    from miles_core.testing.fakes.manual_clock import ManualClock as ManualClock
    from miles_core.testing.fakes.png import make_png as make_png
    from miles_core.testing.fakes.run_recipe import run_recipe as run_recipe
    from miles_core.testing.fakes.scripted_engine import ScriptedEngine as ScriptedEngine
    from miles_core.testing.fakes.tiny_model import tiny_model as tiny_model
    from miles_core.testing.fakes.two_tasks import TwoTasks as TwoTasks
    from miles_core.testing.installing import SitePackages as SitePackages


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"miles_core.testing has no public name {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
