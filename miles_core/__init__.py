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
    "miles_core.types.sampling": "NoiseKey Sampling",
    "miles_core.types.sequence": "NO_VERSION Sequence Span",
    "miles_core.types.task": "Message Task ToolDefinition",
    "miles_core.types.trajectory": "Disposition Group Score Status Trajectory",
    "miles_core.contracts.component": "BuildContext Component ComponentRef load_attribute",
    "miles_core.contracts.engine": (
        "Engine EngineCapabilities EngineClient EngineStats Finish GenerateRequest GenerateResult PauseMode VersionSpan"
    ),
    "miles_core.contracts.learning": "Advantage Correction Loss LossInputs TokenTerms",
    "miles_core.contracts.lifecycle": "Clock EventSink Health Lifecycle RealClock",
    "miles_core.contracts.middleware": "AgentMiddleware GeneratorMiddleware Middleware RolloutMiddleware",
    "miles_core.contracts.model": "ModelCard ModelFiles ModelSpec Parsed Renderer TemplateReference prompt_tokens",
    "miles_core.contracts.observing": "Evaluation EvaluationContext Evaluator Handle Runtime Tracker",
    "miles_core.contracts.options": "NoOptions Options ScheduleOptions StalenessOptions TrainerOptions",
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
    from miles_core.contracts.component import (
        BuildContext as BuildContext,
    )
    from miles_core.contracts.component import (
        Component as Component,
    )
    from miles_core.contracts.component import (
        ComponentRef as ComponentRef,
    )
    from miles_core.contracts.component import (
        load_attribute as load_attribute,
    )
    from miles_core.contracts.engine import (
        Engine as Engine,
    )
    from miles_core.contracts.engine import (
        EngineCapabilities as EngineCapabilities,
    )
    from miles_core.contracts.engine import (
        EngineClient as EngineClient,
    )
    from miles_core.contracts.engine import (
        EngineStats as EngineStats,
    )
    from miles_core.contracts.engine import (
        Finish as Finish,
    )
    from miles_core.contracts.engine import (
        GenerateRequest as GenerateRequest,
    )
    from miles_core.contracts.engine import (
        GenerateResult as GenerateResult,
    )
    from miles_core.contracts.engine import (
        PauseMode as PauseMode,
    )
    from miles_core.contracts.engine import (
        VersionSpan as VersionSpan,
    )
    from miles_core.contracts.learning import (
        Advantage as Advantage,
    )
    from miles_core.contracts.learning import (
        Correction as Correction,
    )
    from miles_core.contracts.learning import (
        Loss as Loss,
    )
    from miles_core.contracts.learning import (
        LossInputs as LossInputs,
    )
    from miles_core.contracts.learning import (
        TokenTerms as TokenTerms,
    )
    from miles_core.contracts.lifecycle import (
        Clock as Clock,
    )
    from miles_core.contracts.lifecycle import (
        EventSink as EventSink,
    )
    from miles_core.contracts.lifecycle import (
        Health as Health,
    )
    from miles_core.contracts.lifecycle import (
        Lifecycle as Lifecycle,
    )
    from miles_core.contracts.lifecycle import (
        RealClock as RealClock,
    )
    from miles_core.contracts.middleware import (
        AgentMiddleware as AgentMiddleware,
    )
    from miles_core.contracts.middleware import (
        GeneratorMiddleware as GeneratorMiddleware,
    )
    from miles_core.contracts.middleware import (
        Middleware as Middleware,
    )
    from miles_core.contracts.middleware import (
        RolloutMiddleware as RolloutMiddleware,
    )
    from miles_core.contracts.model import (
        ModelCard as ModelCard,
    )
    from miles_core.contracts.model import (
        ModelFiles as ModelFiles,
    )
    from miles_core.contracts.model import (
        ModelSpec as ModelSpec,
    )
    from miles_core.contracts.model import (
        Parsed as Parsed,
    )
    from miles_core.contracts.model import (
        Renderer as Renderer,
    )
    from miles_core.contracts.model import (
        TemplateReference as TemplateReference,
    )
    from miles_core.contracts.model import (
        prompt_tokens as prompt_tokens,
    )
    from miles_core.contracts.observing import (
        Evaluation as Evaluation,
    )
    from miles_core.contracts.observing import (
        EvaluationContext as EvaluationContext,
    )
    from miles_core.contracts.observing import (
        Evaluator as Evaluator,
    )
    from miles_core.contracts.observing import (
        Handle as Handle,
    )
    from miles_core.contracts.observing import (
        Runtime as Runtime,
    )
    from miles_core.contracts.observing import (
        Tracker as Tracker,
    )
    from miles_core.contracts.options import (
        NoOptions as NoOptions,
    )
    from miles_core.contracts.options import (
        Options as Options,
    )
    from miles_core.contracts.options import (
        ScheduleOptions as ScheduleOptions,
    )
    from miles_core.contracts.options import (
        StalenessOptions as StalenessOptions,
    )
    from miles_core.contracts.options import (
        TrainerOptions as TrainerOptions,
    )
    from miles_core.contracts.pace import (
        Pace as Pace,
    )
    from miles_core.contracts.pace import (
        Refill as Refill,
    )
    from miles_core.contracts.planning import (
        RecipeFacts as RecipeFacts,
    )
    from miles_core.contracts.rollout import (
        Agent as Agent,
    )
    from miles_core.contracts.rollout import (
        Attempt as Attempt,
    )
    from miles_core.contracts.rollout import (
        Buffer as Buffer,
    )
    from miles_core.contracts.rollout import (
        Data as Data,
    )
    from miles_core.contracts.rollout import (
        Discard as Discard,
    )
    from miles_core.contracts.rollout import (
        Draw as Draw,
    )
    from miles_core.contracts.rollout import (
        Episode as Episode,
    )
    from miles_core.contracts.rollout import (
        Filter as Filter,
    )
    from miles_core.contracts.rollout import (
        GenerateContext as GenerateContext,
    )
    from miles_core.contracts.rollout import (
        Generator as Generator,
    )
    from miles_core.contracts.rollout import (
        Matcher as Matcher,
    )
    from miles_core.contracts.rollout import (
        Outcome as Outcome,
    )
    from miles_core.contracts.rollout import (
        Reward as Reward,
    )
    from miles_core.contracts.rollout import (
        Rollout as Rollout,
    )
    from miles_core.contracts.rollout import (
        RolloutContext as RolloutContext,
    )
    from miles_core.contracts.rollout import (
        Schedule as Schedule,
    )
    from miles_core.contracts.rollout import (
        Staleness as Staleness,
    )
    from miles_core.contracts.rollout import (
        Verdict as Verdict,
    )
    from miles_core.contracts.sessions import (
        Collected as Collected,
    )
    from miles_core.contracts.sessions import (
        SessionAddress as SessionAddress,
    )
    from miles_core.contracts.sessions import (
        SessionRules as SessionRules,
    )
    from miles_core.contracts.sessions import (
        Sessions as Sessions,
    )
    from miles_core.contracts.trainer import (
        StepReport as StepReport,
    )
    from miles_core.contracts.trainer import (
        Trainer as Trainer,
    )
    from miles_core.contracts.trainer import (
        TrainerFacts as TrainerFacts,
    )
    from miles_core.contracts.transport import (
        Delivery as Delivery,
    )
    from miles_core.contracts.transport import (
        Form as Form,
    )
    from miles_core.contracts.transport import (
        Precision as Precision,
    )
    from miles_core.contracts.transport import (
        TensorInfo as TensorInfo,
    )
    from miles_core.contracts.transport import (
        Transport as Transport,
    )
    from miles_core.contracts.transport import (
        UpdateManifest as UpdateManifest,
    )
    from miles_core.contracts.transport import (
        UpdateTarget as UpdateTarget,
    )
    from miles_core.contracts.transport import (
        WeightSource as WeightSource,
    )
    from miles_core.contracts.transport import (
        WireTensor as WireTensor,
    )
    from miles_core.errors import (
        MilesDeprecationWarning as MilesDeprecationWarning,
    )
    from miles_core.errors import (
        MilesError as MilesError,
    )
    from miles_core.errors import (
        PluginError as PluginError,
    )
    from miles_core.errors import (
        Problem as Problem,
    )
    from miles_core.errors import (
        PublicationError as PublicationError,
    )
    from miles_core.errors import (
        RequestError as RequestError,
    )
    from miles_core.errors import (
        RunError as RunError,
    )
    from miles_core.errors import (
        ValidationError as ValidationError,
    )
    from miles_core.errors import (
        WorkerDied as WorkerDied,
    )
    from miles_core.hookspecs import (
        HOOK_API_VERSION as HOOK_API_VERSION,
    )
    from miles_core.hookspecs import (
        Deprecated as Deprecated,
    )
    from miles_core.hookspecs import (
        hookimpl as hookimpl,
    )
    from miles_core.hookspecs import (
        hookspec as hookspec,
    )
    from miles_core.loop.api import (
        Run as Run,
    )
    from miles_core.loop.api import (
        export as export,
    )
    from miles_core.loop.api import (
        resume as resume,
    )
    from miles_core.loop.api import (
        run as run,
    )
    from miles_core.rollout.sequence_builder import (
        SequenceBuilder as SequenceBuilder,
    )
    from miles_core.rollout.tickets import (
        Ticket as Ticket,
    )
    from miles_core.rollout.tickets import (
        Tickets as Tickets,
    )
    from miles_core.runtime.calls import (
        Call as Call,
    )
    from miles_core.runtime.calls import (
        Cancel as Cancel,
    )
    from miles_core.runtime.calls import (
        PendingCalls as PendingCalls,
    )
    from miles_core.runtime.calls import (
        Reply as Reply,
    )
    from miles_core.runtime.component_server import (
        ComponentServer as ComponentServer,
    )
    from miles_core.runtime.surroundings import (
        last_words as last_words,
    )
    from miles_core.runtime.surroundings import (
        worker_environment as worker_environment,
    )
    from miles_core.runtime.surroundings import (
        worker_path as worker_path,
    )
    from miles_core.types.batch import (
        Batch as Batch,
    )
    from miles_core.types.batch import (
        Row as Row,
    )
    from miles_core.types.sampling import (
        NoiseKey as NoiseKey,
    )
    from miles_core.types.sampling import (
        Sampling as Sampling,
    )
    from miles_core.types.sequence import (
        NO_VERSION as NO_VERSION,
    )
    from miles_core.types.sequence import (
        Sequence as Sequence,
    )
    from miles_core.types.sequence import (
        Span as Span,
    )
    from miles_core.types.task import (
        Message as Message,
    )
    from miles_core.types.task import (
        Task as Task,
    )
    from miles_core.types.task import (
        ToolDefinition as ToolDefinition,
    )
    from miles_core.types.trajectory import (
        Disposition as Disposition,
    )
    from miles_core.types.trajectory import (
        Group as Group,
    )
    from miles_core.types.trajectory import (
        Score as Score,
    )
    from miles_core.types.trajectory import (
        Status as Status,
    )
    from miles_core.types.trajectory import (
        Trajectory as Trajectory,
    )
    from miles_core.weights.model_cache import (
        cache_root as cache_root,
    )
    from miles_core.weights.model_cache import (
        check_made as check_made,
    )
    from miles_core.weights.model_cache import (
        make_once as make_once,
    )


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"miles_core has no public name {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
