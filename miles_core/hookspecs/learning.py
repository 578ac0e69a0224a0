"""Registration hooks of what learns, of models and engines, and of where a run lives and is seen.

Examples begin with `from miles_core import Component, hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable

from miles_core.contracts.component import Component
from miles_core.hookspecs.marks import hookspec


@hookspec(since="1.0")
def miles_advantages() -> Iterable[Component]:
    """Advantage estimators: group scores to advantages of tokens (numpy).

    The factory makes a `miles_core.Advantage`, in the driver, for each phase whose `advantage:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_advantages():
            return [Component("ranked", factory="my_package.ranked:Ranked", summary="Ranks instead of rewards")]
    """
    return ()


@hookspec(since="1.0")
def miles_corrections() -> Iterable[Component]:
    """Importance corrections of the mismatch between engine and trainer.

    The factory makes a `miles_core.Correction`, in the trainer's process.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_corrections():
            return [Component("soft", factory="my_package.soft:Soft", options="my_package.options:Soft")]
    """
    return ()


@hookspec(since="1.0")
def miles_losses() -> Iterable[Component]:
    """Losses: one number for each sampled token, and how tokens are weighted.

    The factory makes a `miles_core.Loss`, in the trainer's process.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_losses():
            return [Component("hinge", factory="my_package.hinge:Hinge", capabilities=frozenset({"needs-advantage"}))]
    """
    return ()


@hookspec(since="1.0")
def miles_model_specs() -> Iterable[Component]:
    """Model specs: weights, tokenizer, card and renderer of a model family.

    The factory makes a `miles_core.ModelSpec`, in the driver; its `describe` imports no torch.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_model_specs():
            return [Component("my-model", factory="my_package.model:MyModel", options="my_package.options:MyModel")]
    """
    return ()


@hookspec(since="1.0")
def miles_renderers() -> Iterable[Component]:
    """Renderers: messages to tokens and back, apart from a model spec.

    The factory makes a `miles_core.Renderer`, in the driver.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_renderers():
            return [Component("plain-chat", factory="my_package.render:PlainChat")]
    """
    return ()


@hookspec(since="1.0")
def miles_engines() -> Iterable[Component]:
    """Engines: token ids in; sampled ids, log-probs and version spans out.

    The factory makes a `miles_core.Engine`, in a process of its own for each replica.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_engines():
            return [
                Component("my-engine", factory="my_package.engine:MyEngine", capabilities=frozenset({"needs-gpu"}))
            ]
    """
    return ()


@hookspec(since="1.0")
def miles_trainers() -> Iterable[Component]:
    """Trainers: score sequences, take optimizer steps, hand out weights.

    The factory makes a `miles_core.Trainer`, in a process of its own; its options derive from
    `miles_core.TrainerOptions`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_trainers():
            return [
                Component("my-trainer", factory="my_package.trainer:MyTrainer", options="my_package.options:MyTrainer")
            ]
    """
    return ()


@hookspec(since="1.0")
def miles_transports() -> Iterable[Component]:
    """Transports: bring a version of the weights to every engine.

    The factory makes a `miles_core.Transport`, in the driver, in the trainer's process and in each engine's.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_transports():
            return [Component("over-nfs", factory="my_package.nfs:OverNfs", options="my_package.options:OverNfs")]
    """
    return ()


@hookspec(since="1.0")
def miles_precisions() -> Iterable[Component]:
    """Precisions: one quantizer for four stages.

    The factory makes a `miles_core.Precision`, in the trainer's process and in each engine's.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_precisions():
            return [Component("int3", factory="my_package.int3:Int3", summary="Three bits a weight")]
    """
    return ()


@hookspec(since="1.0")
def miles_trackers() -> Iterable[Component]:
    """Trackers: where metrics go beside the run's folder.

    The factory makes a `miles_core.Tracker`, in the driver, for each entry of `trackers:`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_trackers():
            return [Component("my-board", factory="my_package.board:Board", options="my_package.options:Board")]
    """
    return ()


@hookspec(since="1.0")
def miles_runtimes() -> Iterable[Component]:
    """Runtimes: where processes live.

    The factory makes a `miles_core.Runtime`, in the driver.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_runtimes():
            return [
                Component("my-cluster", factory="my_package.cluster:Cluster", options="my_package.options:Cluster")
            ]
    """
    return ()


@hookspec(since="1.0")
def miles_recipes() -> Iterable[Component]:
    """Packaged recipes: `factory` names a YAML file as `package:relative/path.yaml`.

    Nothing is built: `miles recipes list` shows the file, and `miles run NAME` runs it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_recipes():
            return [Component("my-quickstart", factory="my_package:recipes/quickstart.yaml")]
    """
    return ()
