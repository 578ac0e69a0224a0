"""What a demonstration shows beside its words."""

from __future__ import annotations

from miles_core import ImageFile, NoOptions, Task
from miles_core.rollout.demonstration import Demonstration
from miles_core.testing import CharImageRenderer, make_attempt, make_generate_context, make_png

FILES = [make_png(5, 3, seed=1), make_png(4, 2, seed=2)]


def shows(data: bytes) -> dict:
    return {"role": "user", "content": [{"type": "text", "text": "see "}, ImageFile.of(data).part]}


async def test_images_of_the_prompt_and_between_the_turns():
    shown = [{"role": "assistant", "content": "one"}, shows(FILES[1]), {"role": "assistant", "content": "two"}]
    task = Task("t", (shows(FILES[0]),), metadata={"demonstration": shown})
    context = make_generate_context(renderer=CharImageRenderer())
    made = await Demonstration(NoOptions(), None).generate(make_attempt(task), context)
    (sequence,) = made.sequences
    assert [span.image.file for span in sequence.images] == FILES
    for span in sequence.images:
        assert set(sequence.tokens[span.start : span.stop].tolist()) == {1}
    learned = "".join(chr(t) for t in sequence.tokens[sequence.sampled])
    assert learned == "one\0two\0"


async def test_an_image_of_a_task_with_an_answer():
    context = make_generate_context(renderer=CharImageRenderer())
    task = Task("t", (shows(FILES[0]),), "3")
    (sequence,) = (await Demonstration(NoOptions(), None).generate(make_attempt(task), context)).sequences
    assert [span.image.file for span in sequence.images] == FILES[:1]
