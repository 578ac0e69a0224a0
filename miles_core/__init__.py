"""Miles: a plugin host for reinforcement-learning post-training of language models.

`from miles_core import X` is the whole public API; what is not listed here is private. Names are imported when they
are first used (PEP 562), so that `import miles_core` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "miles_core.errors": (
        "MilesDeprecationWarning MilesError PluginError Problem PublicationError RequestError RunError ValidationError "
        "WorkerDied"
    ),
    "miles_core.types.batch": "Batch Row",
    "miles_core.types.estimate": "Estimate pass_at_k",
    "miles_core.types.sampling": "NoiseKey Sampling",
    "miles_core.types.image": "ImageInput ImageSpan",
    "miles_core.types.image_file": "ImageFile",
    "miles_core.types.sequence": "NO_VERSION Sequence Span",
    "miles_core.types.task": "Message Task ToolDefinition",
    "miles_core.types.trajectory": "CANCELLED Disposition Group REMADE Score Status Trajectory",
    "miles_core.contracts.beside": "Adapts Foresees GivesUp Remakes Repaces Resizes",
    "miles_core.contracts.component": "BuildContext Component ComponentRef load_attribute",
    "miles_core.contracts.engine": (
        "Engine EngineCapabilities EngineClient EngineStats Finish GenerateRequest GenerateResult PauseMode VersionSpan"
    ),
    "miles_core.contracts.images": "ImageRenderer Rendered bridged has_images prompt_tokens rendered",
    "miles_core.contracts.learning": "Advantage Correction Loss LossInputs TokenTerms",
    "miles_core.contracts.lifecycle": "Clock EventSink Health Lifecycle RealClock",
    "miles_core.contracts.middleware": "AgentMiddleware GeneratorMiddleware Middleware RolloutMiddleware",
    "miles_core.contracts.model": "ModelCard ModelFiles ModelSpec Parsed Renderer TemplateReference",
    "miles_core.contracts.observing": "Evaluation EvaluationContext Evaluator Handle Runtime Tracker",
    "miles_core.contracts.options": (
        "EvaluatorOptions NoOptions Options RuntimeOptions ScheduleOptions StalenessOptions TrainerOptions"
    ),
    "miles_core.contracts.pace": "Pace Refill",
    "miles_core.contracts.planning": "RecipeFacts",
    "miles_core.contracts.rollout": (
        "Agent Attempt Buffer Data Discard Draw Episode Filter GenerateContext Generator Matcher Outcome Reward "
        "Rollout RolloutContext Schedule Staleness Verdict"
    ),
    "miles_core.contracts.sessions": "Collected SessionAddress SessionRules Sessions",
    "miles_core.contracts.trainer": "StepReport Trainer TrainerFacts",
    "miles_core.contracts.transport": (
        "Delivery Form Precision TensorInfo Transport UpdateManifest UpdateTarget WeightSource WireTensor"
    ),
    "miles_core.hookspecs": "Deprecated HOOK_API_VERSION hookimpl hookspec",
    "miles_core.loop.api": "Run export resume run",
    "miles_core.loop.evaluate": "evaluate",
    "miles_core.rollout.sequence_builder": "SequenceBuilder",
    "miles_core.rollout.tickets": "Ticket Tickets",
    "miles_core.runtime.calls": "Call Cancel PendingCalls Reply",
    "miles_core.runtime.component_server": "ComponentServer",
    "miles_core.runtime.surroundings": "last_words worker_environment worker_path",
    "miles_core.weights.model_cache": "cache_root check_made make_once",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    # One statement for each module; the sorter would write one for each name.
    # isort: off
    from miles_core.contracts.beside import (
        Adapts as Adapts,
        Foresees as Foresees,
        GivesUp as GivesUp,
        Remakes as Remakes,
        Repaces as Repaces,
        Resizes as Resizes,
    )
    from miles_core.contracts.component import (
        BuildContext as BuildContext,
        Component as Component,
        ComponentRef as ComponentRef,
        load_attribute as load_attribute,
    )
    from miles_core.contracts.engine import (
        Engine as Engine,
        EngineCapabilities as EngineCapabilities,
        EngineClient as EngineClient,
        EngineStats as EngineStats,
        Finish as Finish,
        GenerateRequest as GenerateRequest,
        GenerateResult as GenerateResult,
        PauseMode as PauseMode,
        VersionSpan as VersionSpan,
    )
    from miles_core.contracts.images import (
        ImageRenderer as ImageRenderer,
        Rendered as Rendered,
        bridged as bridged,
        has_images as has_images,
        prompt_tokens as prompt_tokens,
        rendered as rendered,
    )
    from miles_core.contracts.learning import (
        Advantage as Advantage,
        Correction as Correction,
        Loss as Loss,
        LossInputs as LossInputs,
        TokenTerms as TokenTerms,
    )
    from miles_core.contracts.lifecycle import (
        Clock as Clock,
        EventSink as EventSink,
        Health as Health,
        Lifecycle as Lifecycle,
        RealClock as RealClock,
    )
    from miles_core.contracts.middleware import (
        AgentMiddleware as AgentMiddleware,
        GeneratorMiddleware as GeneratorMiddleware,
        Middleware as Middleware,
        RolloutMiddleware as RolloutMiddleware,
    )
    from miles_core.contracts.model import (
        ModelCard as ModelCard,
        ModelFiles as ModelFiles,
        ModelSpec as ModelSpec,
        Parsed as Parsed,
        Renderer as Renderer,
        TemplateReference as TemplateReference,
    )
    from miles_core.contracts.observing import (
        Evaluation as Evaluation,
        EvaluationContext as EvaluationContext,
        Evaluator as Evaluator,
        Handle as Handle,
        Runtime as Runtime,
        Tracker as Tracker,
    )
    from miles_core.contracts.options import (
        EvaluatorOptions as EvaluatorOptions,
        NoOptions as NoOptions,
        Options as Options,
        RuntimeOptions as RuntimeOptions,
        ScheduleOptions as ScheduleOptions,
        StalenessOptions as StalenessOptions,
        TrainerOptions as TrainerOptions,
    )
    from miles_core.contracts.pace import Pace as Pace, Refill as Refill
    from miles_core.contracts.planning import RecipeFacts as RecipeFacts
    from miles_core.contracts.rollout import (
        Agent as Agent,
        Attempt as Attempt,
        Buffer as Buffer,
        Data as Data,
        Discard as Discard,
        Draw as Draw,
        Episode as Episode,
        Filter as Filter,
        GenerateContext as GenerateContext,
        Generator as Generator,
        Matcher as Matcher,
        Outcome as Outcome,
        Reward as Reward,
        Rollout as Rollout,
        RolloutContext as RolloutContext,
        Schedule as Schedule,
        Staleness as Staleness,
        Verdict as Verdict,
    )
    from miles_core.contracts.sessions import (
        Collected as Collected,
        SessionAddress as SessionAddress,
        SessionRules as SessionRules,
        Sessions as Sessions,
    )
    from miles_core.contracts.trainer import StepReport as StepReport, Trainer as Trainer, TrainerFacts as TrainerFacts
    from miles_core.contracts.transport import (
        Delivery as Delivery,
        Form as Form,
        Precision as Precision,
        TensorInfo as TensorInfo,
        Transport as Transport,
        UpdateManifest as UpdateManifest,
        UpdateTarget as UpdateTarget,
        WeightSource as WeightSource,
        WireTensor as WireTensor,
    )
    from miles_core.errors import (
        MilesDeprecationWarning as MilesDeprecationWarning,
        MilesError as MilesError,
        PluginError as PluginError,
        Problem as Problem,
        PublicationError as PublicationError,
        RequestError as RequestError,
        RunError as RunError,
        ValidationError as ValidationError,
        WorkerDied as WorkerDied,
    )
    from miles_core.hookspecs import (
        HOOK_API_VERSION as HOOK_API_VERSION,
        Deprecated as Deprecated,
        hookimpl as hookimpl,
        hookspec as hookspec,
    )
    from miles_core.loop.api import Run as Run, export as export, resume as resume, run as run
    from miles_core.loop.evaluate import evaluate as evaluate
    from miles_core.rollout.sequence_builder import SequenceBuilder as SequenceBuilder
    from miles_core.rollout.tickets import Ticket as Ticket, Tickets as Tickets
    from miles_core.runtime.calls import Call as Call, Cancel as Cancel, PendingCalls as PendingCalls, Reply as Reply
    from miles_core.runtime.component_server import ComponentServer as ComponentServer
    from miles_core.runtime.surroundings import (
        last_words as last_words,
        worker_environment as worker_environment,
        worker_path as worker_path,
    )
    from miles_core.types.batch import Batch as Batch, Row as Row
    from miles_core.types.estimate import Estimate as Estimate, pass_at_k as pass_at_k
    from miles_core.types.sampling import NoiseKey as NoiseKey, Sampling as Sampling
    from miles_core.types.image import ImageInput as ImageInput, ImageSpan as ImageSpan
    from miles_core.types.image_file import ImageFile as ImageFile
    from miles_core.types.sequence import NO_VERSION as NO_VERSION, Sequence as Sequence, Span as Span
    from miles_core.types.task import Message as Message, Task as Task, ToolDefinition as ToolDefinition
    from miles_core.types.trajectory import (
        CANCELLED as CANCELLED,
        Disposition as Disposition,
        Group as Group,
        REMADE as REMADE,
        Score as Score,
        Status as Status,
        Trajectory as Trajectory,
    )
    from miles_core.weights.model_cache import (
        cache_root as cache_root,
        check_made as check_made,
        make_once as make_once,
    )
    # isort: on


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"miles_core has no public name {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
