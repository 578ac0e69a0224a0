"""`runtime:`: where the driver lives, and what its machines mean for `transport: auto`."""

from __future__ import annotations

from typing import Any

import pytest

from miles_core.errors import RequestError
from miles_core.recipe.json_schema import recipe_schema
from miles_core.recipe.render import plan_lines
from miles_core.recipe.resolved import Source

CLOUD = """
from miles_core import Component, hookimpl

@hookimpl
def miles_runtimes():
    return [Component("cloud", "miles_plugin_cloud_options:Cloud", "miles_plugin_cloud_options:Cloud")]
"""

OPTIONS = """
from miles_core import RuntimeOptions

class Cloud(RuntimeOptions):
    machines: int = 2

    def spans_machines(self):
        return f"cloud rents {self.machines} machines" if self.machines > 1 else ""
"""

TRANSPORTS = """
from miles_core import Component, hookimpl

@hookimpl
def miles_transports():
    return [Component(name, "miles_plugin_cloud_options:Cloud") for name in %r]
"""


@pytest.fixture
def cloud(kitchen: Any) -> Any:
    kitchen.site.plugin("cloud", CLOUD, provides=["runtime.cloud"])
    kitchen.site.module("miles_plugin_cloud_options", OPTIONS)
    return kitchen


def with_transports(kitchen: Any, name: str, *transports: str) -> None:
    kitchen.site.plugin(name, TRANSPORTS % (transports,), provides=[f"transport.{each}" for each in transports])


def test_the_driver_is_here_unless_the_recipe_says_otherwise(kitchen: Any) -> None:
    plan = kitchen.plan()
    assert (plan.driver, plan.driver_restarts) == ("here", 3)
    assert plan.recipe["runtime"]["driver"] == "here"
    assert plan.sources["runtime.driver"] == Source("default", "miles-core")
    assert "in a worker of the runtime" not in "\n".join(plan_lines(plan))


def test_the_driver_can_be_set_in_a_recipe_without_a_runtime(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.changed(), "runtime.driver=worker", "runtime.driver_restarts=1")
    assert (plan.runtime.name, plan.driver, plan.driver_restarts) == ("local", "worker", 1)
    assert "driver" not in plan.runtime.options
    assert "in a worker of the runtime; when it dies, it is started again, at most 1 times" in "\n".join(
        plan_lines(plan)
    )
    for wrong in ("runtime.driver=there", "runtime.driver_restarts=-1"):
        with pytest.raises(RequestError, match=wrong.partition("=")[0].replace(".", r"\.")):
            kitchen.plan(kitchen.changed(), wrong)


def test_a_recipe_without_a_runtime_is_local_in_the_schema_too() -> None:
    definitions = recipe_schema([])["$defs"]
    local = definitions["runtime.local"]
    assert {"driver", "driver_restarts"} <= set(local["properties"]) and "use" not in local["required"]
    assert "use" in definitions["runtime.in-process"]["required"]


def test_auto_crosses_machines_where_the_runtime_spans_them(cloud: Any) -> None:
    with_transports(cloud, "wire", "wire")
    text = cloud.changed(plugins="[toy, lab, cloud, wire]", runtime="{use: cloud}")
    plan = cloud.plan(text)
    assert plan.transport.name == "wire"
    why = "auto: cloud rents 2 machines, and wire crosses machines"
    assert plan.sources["transport.use"] == Source("default", why)
    one = cloud.plan(text, "runtime.machines=1")
    assert one.transport.name == "shared-memory"
    chosen = cloud.plan(text, "transport.use=shared-memory")
    assert chosen.transport.name == "shared-memory"


def test_auto_refuses_to_guess(cloud: Any) -> None:
    with pytest.raises(RequestError, match="rents 2 machines, and no enabled plugin has a transport that"):
        cloud.plan(cloud.changed(plugins="[toy, lab, cloud]", runtime="{use: cloud}"))
    with_transports(cloud, "wires", "one", "two")
    text = cloud.changed(plugins="[toy, lab, cloud, wires]", runtime="{use: cloud}")
    with pytest.raises(RequestError, match=r"not one crosses machines, but: one, two"):
        cloud.plan(text)
    assert cloud.plan(text, "transport.use=two").transport.name == "two"
