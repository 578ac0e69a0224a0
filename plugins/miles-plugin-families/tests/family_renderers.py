"""Renderers of practice models, each built once. Those whose tokenizer is in no package here are skipped."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from miles_plugin_families import model, options
from miles_plugin_families.catalog import FAMILIES
from miles_plugin_families.model import FamilyModel
from miles_plugin_families.renderer import FamilyRenderer

from miles_core import BuildContext, RequestError


def build(name: str, **given: Any) -> FamilyModel:
    family = FAMILIES[name]
    made = getattr(options, family.options)(**(given or family.example))
    factory = getattr(model, "build_" + name.replace("-", "_").replace(".", "_"))
    return factory(made, BuildContext(1, "model"))


@lru_cache(maxsize=32)
def renderer_of(name: str, **given: Any) -> FamilyRenderer:
    try:
        return build(name, **given).renderer()
    except RequestError as error:
        pytest.skip(str(error))
