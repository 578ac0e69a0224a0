"""Checks of the kind `model`. See `contracts.model.ModelSpec`; its renderer is checked in `renderer`."""

from __future__ import annotations

import base64
import json
import pickle
import re
import struct
from pathlib import Path
from typing import Any

from miles_core.contracts.model import ModelCard, ModelFiles
from miles_core.testing.kit.apart import python
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.rendering import materialised
from miles_core.testing.kit.subject import ComponentSubject

KIND = "model"
HEAVY = ("torch", "transformers", "tensorflow", "jax")
DESCRIBE = """
import base64, json, os, pickle, sys
from pathlib import Path
from miles_core.contracts.component import BuildContext
from miles_core.testing.kit.offline import offline
reference, cache, folder, here = pickle.loads(base64.b64decode(sys.argv[1])), *sys.argv[2:]
os.environ["MILES_CACHE"] = cache
os.chdir(here)
with offline():
    card = reference.build(BuildContext(1, "model", Path(folder))).describe()
print(json.dumps({"name": card.name, "parameters": card.parameters, "heavy": [n for n in %r if n in sys.modules]}))
"""


@check(KIND, Grade.SILVER, "its card is whole: names, positive sizes, stop tokens inside the vocabulary")
def has_a_whole_card(subject: ComponentSubject) -> None:
    card = subject.build().describe()
    expect(isinstance(card, ModelCard), f"describe gave {type(card).__name__}", "return a miles_core.ModelCard")
    expect(card.name and card.architecture, "the card has no name or architecture", "give both")
    for name in ("context", "vocabulary", "hidden", "parameters"):
        value = getattr(card, name)
        expect(
            isinstance(value, int) and value > 0, f"the card's {name} is {value!r}", f"give {name} as an int above 0"
        )
    wrong = [token for token in card.stop_tokens if not 0 <= token < card.vocabulary]
    expect(not wrong, f"the stop tokens {wrong} are outside the vocabulary of {card.vocabulary}", "correct stop_tokens")


@check(KIND, Grade.GOLD, "describe needs no torch, no network and no files: configuration alone tells the card")
def describes_itself_from_configuration(subject: ComponentSubject) -> None:
    card = subject.build().describe()
    cache = subject.folder / "empty-cache"
    cache.mkdir()
    reference = base64.b64encode(pickle.dumps(subject.ref())).decode()
    ended = python(DESCRIBE % (HEAVY,), reference, str(cache), str(subject.folder), str(Path.cwd()))
    expect(
        ended.status == 0,
        f"in a process without network and with an empty cache, describe failed: {ended.last_words}",
        "read the card from constants or from config.json; fetch nothing before materialise",
    )
    told = json.loads(ended.output.splitlines()[-1])
    expect(
        not told["heavy"],
        f"describe imported {', '.join(told['heavy'])}",
        "import it inside materialise, or not at all: the driver and `miles plan` run without it",
    )
    expect(
        (told["name"], told["parameters"]) == (card.name, card.parameters),
        "the card differs with an empty cache",
        "let the card depend on options and configuration only",
    )
    made = [str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()]
    expect(not made, f"describe wrote {made[:3]} into the cache", "leave fetching and converting to materialise")


@check(KIND, Grade.GOLD, "materialise gives a Hugging Face directory that is what the card says")
def materialises_what_it_describes(subject: ComponentSubject) -> None:
    model, _ = materialised(subject)
    files, card = model.materialise(), model.describe()
    expect(isinstance(files, ModelFiles), f"materialise gave {type(files).__name__}", "return miles_core.ModelFiles")
    expect(files.card == card, f"describe says {card}, materialise {files.card}", "give the same card from both")
    expect(files.path.is_dir(), f"{files.path} is no folder", "give the folder that the files are in")
    config_file, weights = files.path / "config.json", sorted(files.path.glob("*.safetensors"))
    if not re.search("For[A-Z]", card.architecture) and not config_file.exists():
        inapplicable(f"{card.architecture} is no Hugging Face class: its weights are its own engine's and trainer's")
    expect(config_file.is_file(), f"there is no config.json in {files.path}", "write config.json")
    expect(weights, f"there are no *.safetensors in {files.path}", "write the weights as safetensors")
    expect((files.path / "tokenizer.json").is_file(), "there is no tokenizer.json", "write tokenizer.json")
    _check_config(card, json.loads(config_file.read_text(encoding="utf-8")))
    count = _count_parameters(weights)
    expect(
        count == card.parameters,
        f"the weights have {count} numbers, the card says {card.parameters}",
        "count every tensor of the files once (a tied embedding is stored once)",
    )


@check(KIND, Grade.GOLD, "a second materialise finds the files and changes none of them")
def materialises_once(subject: ComponentSubject) -> None:
    model, _ = materialised(subject)
    first = model.materialise()
    before = _standing(first.path)
    again = subject.build().materialise()
    expect(again == first, f"the second call gave {again}, the first {first}", "give the same folder and card")
    changed = [name for name, facts in _standing(first.path).items() if before.get(name) != facts]
    expect(not changed, f"the second call wrote {changed[:3]} again", "use miles_core.make_once")


def _check_config(card: ModelCard, config: dict[str, Any]) -> None:
    text = config.get("text_config", config)
    for ours, theirs in (
        (card.vocabulary, text.get("vocab_size")),
        (card.hidden, text.get("hidden_size")),
        (card.layers, text.get("num_hidden_layers")),
        (card.architecture, (config.get("architectures") or [card.architecture])[0]),
    ):
        expect(
            theirs is None or ours == theirs,
            f"the card says {ours!r} where config.json says {theirs!r}",
            "make the card from config.json, or correct its constants",
        )
    longest = text.get("max_position_embeddings")
    expect(
        longest is None or card.context <= longest,
        f"the card's context is {card.context}, config.json allows {longest}",
        "lower the card's context",
    )


def _count_parameters(files: list[Path]) -> int:
    """Numbers in all tensors, from the safetensors headers."""
    total = 0
    for file in files:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                count = 1
                for size in tensor["shape"]:
                    count *= size
                total += count
    return total


def _standing(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
