"""Checks of the kind `trainer`: checkpoints and exports. See `contracts.trainer.Trainer`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from miles_core.errors import RequestError
from miles_core.testing.fakes.tiny_model import tiny_model
from miles_core.testing.kit.bench_trainer import batch_of, lines, same_scores, trainer_bench
from miles_core.testing.kit.check import Grade, check, expect, fail, inapplicable
from miles_core.testing.kit.subject import ComponentSubject

KIND = "trainer"
gold = partial(check, KIND, Grade.GOLD, reduced=True)


@gold("loaded, a checkpoint continues as if nothing had happened: scores and next steps are equal to the last bit")
def continues_from_a_checkpoint(subject: ComponentSubject) -> None:
    folder = _empty(subject.folder / "saved")
    with trainer_bench(subject) as bench:
        trainer = bench.one
        for step in range(2):
            trainer.step(batch_of({"g0/0": 1.0, "g0/1": -0.5}, step=step))
        trainer.save(folder)
        saved = trainer.score(lines())
        expect(any(folder.iterdir()), "save wrote nothing", "write into the folder that it is given")
        trainer.step(batch_of(-1.0, step=2))
        later = trainer.score(lines())
        fresh = bench.build()
        fresh.load(folder)
        fresh.begin_phase(bench.parts())
        expect(
            same_scores(fresh.score(lines()), saved),
            "a fresh trainer that loaded the checkpoint scores otherwise than the one that saved it",
            "save weights in the dtype that they are trained in, and load every one",
        )
        fresh.step(batch_of(-1.0, step=2))
        same = same_scores(fresh.score(lines()), later)
        fresh.close()
        expect(
            same,
            "the step after loading differs from the step after saving",
            "save and load the optimizer's moments and step count, the schedule and the random state as well",
        )


@gold("a checkpoint of another model is refused with RequestError")
def refuses_another_models_checkpoint(subject: ComponentSubject) -> None:
    folder = _empty(subject.folder / "saved")
    with trainer_bench(subject) as bench:
        if not bench.model.tiny:
            inapplicable("its model is the plugin's own: there is no other to load")
        bench.one.save(folder)
        files = tiny_model(subject.folder / "deeper", layers=3)
        other = bench.build(files=files)
        before = other.score(lines())
        try:
            other.load(folder)
        except RequestError:
            same = same_scores(before, other.score(lines()))
            expect(same, "the weights changed though the checkpoint was refused", "compare before you copy")
            return
        except Exception as error:
            fail(f"load raised {type(error).__name__}: {error}", "raise miles_core.RequestError that names both models")
        finally:
            other.close()
        fail("the checkpoint of a model of 2 layers was loaded into one of 3", "compare names and shapes in load")


@gold("an export is a Hugging Face directory with the trained weights, which loads again")
def exports_what_it_trained(subject: ComponentSubject) -> None:
    folder = _empty(subject.folder / "exported")
    with trainer_bench(subject) as bench:
        architecture = bench.model.files.card.architecture
        bench.one.step(batch_of())
        bench.one.export(folder)
        if not re.search("For[A-Z]", architecture) and not (folder / "config.json").exists():
            inapplicable(f"{architecture} is no Hugging Face class")
        for name in ("config.json", "*.safetensors"):
            expect(any(folder.glob(name)), f"there is no {name} in the export", f"write {name}: transformers reads it")
        again = bench.build(files=replace(bench.model.files, path=folder))
        worst = max(
            float(np.abs(a - b).max()) for a, b in zip(again.score(lines()), bench.one.score(lines()), strict=True)
        )
        again.close()
        expect(
            worst < 0.02,
            f"a trainer built from the export scores tokens {worst:.3g} nats otherwise",
            "export the weights in use now, under the names that transformers uses",
        )


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
