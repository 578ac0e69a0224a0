"""Every task once in an epoch, none of those that are held out, and going on where a run stopped."""

from miles_core import BuildContext, Task

from miles_plugin_xyz.data import XyzData
from miles_plugin_xyz.options import XyzOptions


def made(seed: int = 1, epochs: int | None = 2) -> XyzData:
    options = XyzOptions(largest=20, step=3, epochs=epochs)
    return XyzData(options, BuildContext(seed=seed, name="data"))


def drawn(data: XyzData) -> list[Task]:
    tasks = []
    while (draw := data.draw()) is not None:
        tasks.append(draw.task)
    return tasks


def test_a_task_asks_for_the_next_number() -> None:
    (task,) = made().held_out(1)
    assert (task.prompt, task.answer) == ("9 12 15", "18")


def test_an_epoch_has_every_task_once_and_no_held_out_one() -> None:
    tasks, held_out = drawn(made()), made().held_out(100)
    first, second = tasks[:18], tasks[18:]
    assert len({task.id for task in first}) == len(first) == 18
    assert sorted(task.id for task in first) == sorted(task.id for task in second)
    assert first != second
    assert len(held_out) == 2 and not {task.id for task in held_out} & {task.id for task in first}


def test_the_seed_decides_the_order() -> None:
    assert drawn(made(seed=1)) == drawn(made(seed=1)) != drawn(made(seed=2))


def test_it_goes_on_where_it_stopped() -> None:
    whole, interrupted, resumed = made(), made(), made()
    for _ in range(7):
        interrupted.draw()
    resumed.restore(interrupted.state())
    assert drawn(resumed) == drawn(whole)[7:]
