"""What a component may declare of itself: `Component(…, capabilities=frozenset({"needs-gpu"}))`.

The words are few and each is read by somebody; `miles plan` and `miles plugins show` print all of them. A word that is
not here is refused at registration, with the nearest one, except a plugin's own, which begins with `x-`: nobody but
listings and the options models' `check` (through `RecipeFacts.capabilities`) reads those.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from miles_core.contracts.component import KINDS

NO_ENGINE = "no-engine"
NEEDS_AGENT = "needs-agent"
NEEDS_GPU = "needs-gpu"
ONE_MACHINE = "one-machine"
OWN_ENGINES = "own-engines"
EXPORTED_WEIGHTS = "exported-weights"
IMAGES = "images"
TOY_MODEL = "toy-model"
STAND_IN = "stand-in-example"
REMAKES = "remakes"
NEEDS = "needs-"
OWN = "x-"

CAPABILITIES: Mapping[str, str] = {
    NO_ENGINE: "generator, rollout: asks no engine for tokens. Read by a recipe's rules and by whoever starts engines",
    NEEDS_GPU: "cannot work without a GPU. Read by the plan, which warns where this machine shows none",
    "shared-prefix": "engine, trainer: computes what the trajectories of a group have in common once. Shown",
    "token-exact": "agent, generator: trains on exactly the tokens that were sampled, none is encoded again. Shown",
    "async": "rollout, schedule, reward: works beside the trainer instead of in turn with it. Shown",
    REMAKES: "rollout: can make single trajectories of a group again. Read by staleness policies that ask for it",
    ONE_MACHINE: "transport: reaches only processes of the sender's own machine. Read by runtimes that use several",
    OWN_ENGINES: "evaluator: its attempts go to engines that only evaluate, which hold the version that it measures "
    "while training goes on. Read by the plan and by whoever starts engines",
    EXPORTED_WEIGHTS: "evaluator: it is given a Hugging Face directory of the version that it measures, asks no "
    "engine, and training goes on meanwhile. Read by the plan and by the loop",
    IMAGES: "engine, trainer: takes sequences with images, of models that have some. Read by the checks before "
    "a run, which is refused where its tasks have images and one of them does not",
    TOY_MODEL: "engine, trainer: works with the core's toy model alone. Read by the conformance kit",
    STAND_IN: "model, renderer: its `example` stands in for what cannot be had here, such as a tokenizer, and what is "
    "tried on it proves nothing of the real one. Read by the conformance kit and by `miles families check`",
    "multi-process": "engine, trainer: one component is several processes. Shown",
    **{
        f"{NEEDS}{kind}": f"cannot work without a {kind}. Read by the rules of a recipe, which refuse it without one"
        for kind in KINDS
    },
}
"""Every capability: who declares it, what it says, and who reads it."""


def unknown_capabilities(declared: Iterable[str]) -> dict[str, str]:
    """Those that are not in the vocabulary and not a plugin's own, each with the nearest that is ("": none is near)."""
    unknown = sorted(each for each in declared if each not in CAPABILITIES and not each.startswith(OWN))
    return {each: next(iter(difflib.get_close_matches(each, CAPABILITIES, n=1)), "") for each in unknown}
