"""Checks of the kind `trainer`: what it says, scores, learns and refuses. See `contracts.trainer.Trainer`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from miles_core.contracts.trainer import StepReport, TrainerFacts
from miles_core.errors import RunError
from miles_core.testing.fakes.makers import make_batch, make_group, make_sequence, make_trajectory
from miles_core.testing.kit.bench_trainer import (
    NotANumber,
    batch_of,
    lines,
    loss_ref,
    same_scores,
    total_logprob,
    trainer_bench,
)
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.subject import ComponentSubject

KIND = "trainer"
TOLERANCE = 0.02
"""Of log-probs against float64: room for bfloat16, none for another temperature."""
gold = partial(check, KIND, Grade.GOLD, reduced=True)


@check(KIND, Grade.SILVER, "its facts are whole: parameters as the card says, tensors by name", reduced=True)
def states_its_facts(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        facts = bench.one.facts()
        expect(isinstance(facts, TrainerFacts), f"facts() gave {facts!r:.100}", "return miles_core.TrainerFacts")
        wanted = bench.model.files.card.parameters
        count = facts.parameters
        expect(count == wanted, f"{count} parameters, the card says {wanted}", "count tied ones once")
        expect(
            0 < facts.trainable <= facts.parameters,
            f"{facts.trainable} of {facts.parameters} parameters are trainable",
            "trainable counts those that the optimizer changes",
        )
        names = [info.name for info in facts.tensors]
        expect(names and len(set(names)) == len(names), f"its tensors are {names[:3]}...", "name each tensor once")


@gold("scores are float32 [n]: the log-prob of each sampled token at the temperature of its span, 0 elsewhere")
def scores_sampled_tokens(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        given = lines()
        scores = bench.one.score(given)
        expect(len(scores) == len(given), f"{len(scores)} scores for {len(given)} sequences", "give one for each")
        reference = bench.model.reference(0)
        for line, score in zip(given, scores, strict=True):
            _check_score(line, score)
            if reference is None:
                continue
            temperature = line.spans[0].temperature if line.spans else 1.0
            wanted = np.where(line.sampled, reference.logprobs(line.tokens, temperature or 1.0), 0.0)
            worst = float(np.abs(score - wanted).max())
            expect(
                worst <= TOLERANCE,
                f"at temperature {temperature} a score is off by {worst:.4g} nats from a float64 reference",
                "score log-softmax(logits / temperature) of the token itself, given those before it; temperature 1 for "
                "demonstrations and greedy spans",
            )


@gold("the temperature of a span counts: another one gives other scores, greedy those of 1")
def scores_at_the_temperature_of_the_span(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        for step in range(3):  # away from a uniform distribution, where all temperatures are alike
            bench.one.step(batch_of({"g0/0": 1.0, "g0/1": -1.0}, step=step))
        one, half, greedy = bench.one.score([make_sequence("1+2=", "3", temperature=t) for t in (1.0, 0.5, 0.0)])
        mend = "divide the logits by the temperature of each token's span; where it is 0, by 1"
        expect(not np.allclose(one, half, atol=1e-6), "temperatures 1 and 0.5 give the same scores", mend)
        expect(np.allclose(one, greedy, atol=1e-5), "a greedy span is not scored at temperature 1", mend)


@gold("scoring changes nothing, and does not depend on what is scored beside it")
def scores_without_side_effects(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        given = lines()
        first = bench.one.score(given)
        expect(same_scores(first, bench.one.score(given)), "scored twice, scores differ", "score in evaluation mode")
        turned = bench.one.score(given[::-1])[::-1]
        alone = [bench.one.score([line])[0] for line in given]
        for title, other in (("in reverse order", turned), ("one by one", alone)):
            worst = max(float(np.abs(a - b).max()) for a, b in zip(first, other, strict=True))
            expect(
                worst < 1e-3,
                f"scored {title}, a log-prob differs by {worst:.3g}",
                "keep sequences apart in packing, padding and shared prefixes",
            )


@gold("a step moves log-probs the way the advantages point, and reports numbers")
def learns_what_the_advantages_say(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        batch = batch_of({"g0/0": 1.0, "g0/1": -1.0})
        before = total_logprob(bench.one, batch)
        report: Any = None
        for step in range(3):
            report = bench.one.step(batch_of({"g0/0": 1.0, "g0/1": -1.0}, step=step))
        after = total_logprob(bench.one, batch)
        expect(
            after["g0/0"] - after["g0/1"] > before["g0/0"] - before["g0/1"],
            f"in three steps, advantage +1 took a log-prob from {before['g0/0']:.6f} to {after['g0/0']:.6f}, "
            f"and -1 another from {before['g0/1']:.6f} to {after['g0/1']:.6f}",
            "descend the gradient of sum(weights x values); if it is right, give the component an example with a "
            "learning rate that shows in three steps",
        )
        expect(isinstance(report, StepReport), f"step gave {report!r:.100}", "return miles_core.StepReport")
        wrong = {k: v for k, v in report.metrics.items() if not isinstance(v, int | float) or not np.isfinite(v)}
        expect(report.metrics and not wrong, f"its metrics are {wrong or 'empty'}", "report finite numbers by name")


@gold("demonstrations repeated are learned: their loss falls")
def learns_demonstrations(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        shown = make_batch([make_group(["3", "4"]).replacing(_demonstrations())], 1.0)
        before = sum(total_logprob(bench.one, shown).values())
        for _ in range(3):
            bench.one.step(shown)
        after = sum(total_logprob(bench.one, shown).values())
        expect(
            after > before,
            f"the log-prob of two demonstrations went from {before:.6f} to {after:.6f} in three steps",
            "learn from sampled tokens also where logprobs is None and there are no spans",
        )


@gold("a loss that is not finite stops the step with RunError naming the trajectory; the weights stay")
def refuses_what_is_not_finite(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        trainer = bench.one
        before = trainer.score(lines())
        parts = {"loss": loss_ref(NotANumber)}
        trainer.begin_phase(parts)
        mend = "look at every loss value before the optimizer steps, and raise RunError with the trajectory's id"
        try:
            trainer.step(batch_of({"g0/0": 1.0, "g0/1": 0.0}))
        except RunError as error:
            named = "g0/1" in str(error) and "g0/0" not in str(error)
            expect(named, f"the loss of trajectory 'g0/1' is NaN, and the error says: {error}", mend)
        except Exception as error:
            expect(False, f"a loss of NaN raised {type(error).__name__}: {error}", mend)
        else:
            expect(False, "a step with a loss of NaN was taken", mend)
        after = trainer.score(lines())
        expect(same_scores(before, after), "the weights changed in a step that was refused", "check before you step")


@gold("every tensor of its facts is sent, in order, and again after each step with what was learned")
def sends_what_it_has(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        facts = list(bench.one.facts().tensors)
        first = bench.sent(bench.one, 1)
        expect(
            [info for info, _ in first] == facts,
            f"send brought {[i.name for i, _ in first][:3]}..., the facts say {[i.name for i in facts][:3]}...",
            "send exactly facts().tensors: names, shapes, dtypes and order",
        )
        same = bench.sent(bench.one, 2) == first
        expect(same, "without a step, other bytes were sent", "send the weights as they are")
        bench.one.step(batch_of())
        same = bench.sent(bench.one, 3) == first
        expect(not same, "after a step the same bytes were sent", "send the trained weights")
        bench.one.release(3)
        bench.one.release(99)


@gold("the same batches from the same weights give the same result to the last bit")
def repeats_itself(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        other = bench.build()
        for step in range(3):
            for trainer in (bench.one, other):
                trainer.step(batch_of({"g0/0": 1.0, "g0/1": -0.5}, step=step))
        same = same_scores(bench.one.score(lines()), other.score(lines()))
        other.close()
        expect(same, "two trainers built alike differ after three steps", "seed by context.seed, keep the order")


@gold("a new phase keeps the weights and what the optimizer knows")
def begins_another_phase(subject: ComponentSubject) -> None:
    with trainer_bench(subject) as bench:
        other = bench.build()
        for trainer in (bench.one, other):
            trainer.step(batch_of())
        other.begin_phase(bench.parts())
        for trainer in (bench.one, other):
            trainer.step(batch_of(step=1))
        same = same_scores(bench.one.score(lines()), other.score(lines()))
        other.close()
        expect(same, "a step after begin_phase differs from one without it", "build loss and correction, and no more")


def _demonstrations() -> tuple[Any, ...]:
    return tuple(
        make_trajectory(text, id=f"g0/{place}", index=place, sequences=[make_sequence(answer=text, demonstration=True)])
        for place, text in enumerate(("3", "three"))
    )


def _check_score(line: Any, score: Any) -> None:
    n = len(line)
    expect(
        isinstance(score, np.ndarray) and score.dtype == np.float32 and score.shape == (n,),
        f"the score of {n} tokens is {getattr(score, 'dtype', type(score).__name__)} {getattr(score, 'shape', '')}",
        "give a numpy array float32 [n] for each sequence, as long as its tokens",
    )
    learned = score[line.sampled]
    expect(
        np.isfinite(learned).all() and (learned < 0).all(),
        f"the log-probs of sampled tokens are {learned[:4]}",
        "a log-prob is finite and below 0; that of token t is read from the logits at t - 1",
    )
    expect(not score[~line.sampled].any(), "a token that was not sampled has a score", "give 0 where sampled is False")
