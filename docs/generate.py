"""Writes the reference pages from the code: one for each kind of component, one for the events.

    python docs/generate.py            # writes docs/kinds/*.md and docs/hooks.md
    python docs/generate.py --check    # fails when they are not what the code says

A page shows the hook's own text, the contract as it stands in the source, the component that `miles plugins new` makes
of this kind (the same files, tested in CI) and every promise that the conformance kit tries.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import miles_core
from miles_core import hookspecs
from miles_core.contracts.component import KINDS, BuildContext, Component
from miles_core.contracts.middleware import AgentMiddleware, GeneratorMiddleware, Middleware, RolloutMiddleware
from miles_core.contracts.protocols import PROTOCOLS
from miles_core.hookspecs import HOOK_OF_KIND
from miles_core.recipe.schema import Recipe, Section
from miles_core.testing.kit.run import all_checks

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SCAFFOLD = ROOT / "miles_core" / "scaffold" / "kinds"
CONTRACTS: dict[str, tuple[type, ...]] = {
    **{kind: (protocol,) for kind, protocol in PROTOCOLS.items()},
    "middleware": (Middleware, AgentMiddleware, GeneratorMiddleware, RolloutMiddleware),
}
"""Kind -> its Protocol, and what passes everything of it on."""

FACTORY = (
    "What its factory is given, and the keys of a recipe that no option may have: "
    "[what every kind has in common](README.md#what-every-kind-has-in-common)."
)
GENERATED = "<!-- written by docs/generate.py from the code: edit the docstrings there -->\n"


def pages() -> dict[Path, str]:
    """Every generated page: where it lies and what it says."""
    written = {DOCS / "kinds" / f"{kind}.md": _kind_page(kind) for kind in KINDS}
    written[DOCS / "kinds" / "README.md"] = _index()
    written[DOCS / "hooks.md"] = _hooks_page()
    return {file: f"{GENERATED}{text.rstrip()}\n" for file, text in written.items()}


def _index() -> str:
    rows = [
        f"| [`{kind}`]({kind}.md) | `{HOOK_OF_KIND[kind]}` | {_first_line(_spec(HOOK_OF_KIND[kind]))} |"
        for kind in KINDS
    ]
    return "\n".join(
        [
            "# Kinds of components",
            "",
            "A plugin registers components; each has a kind, and each kind one hook and one contract.",
            "`miles plugins new NAME --kind KIND` makes a working one of any kind.",
            "",
            "| kind | hook | what it is |",
            "|---|---|---|",
            *rows,
            "",
            "## What every kind has in common",
            "",
            "A registration hook returns a list of `miles_core.Component`, from",
            "[`miles_core/contracts/component.py`](../../miles_core/contracts/component.py):",
            "",
            _code(inspect.getsource(Component).partition("    def ")[0]),
            "",
            "The factory is called as `factory(options, context)`, with the validated options and a",
            "`miles_core.BuildContext`, and returns an object that keeps the contract of its kind:",
            "",
            _code(inspect.getsource(BuildContext)),
            "",
            "### Names that options may not have",
            "",
            "What stands beside `use:` in a recipe are the component's options, but for the keys that are Miles' own:",
            "an option of such a name could never be given a value.",
            "",
            "| section | Miles' own keys |",
            "|---|---|",
            *_own_keys(),
        ]
    )


def _own_keys() -> Iterator[str]:
    """Rows of the keys that a section has beside the options of its component."""
    yield "| every one | `use` |"
    for name, field in Recipe.model_fields.items():
        [section] = [each for each in _classes(field.annotation) if issubclass(each, Section)][:1] or [Section]
        own = [f"`{key}`" for key in section.model_fields if key not in Section.model_fields]
        if own:
            yield f"| `{name}` | {', '.join(own)} |"


def _classes(annotation: Any) -> Iterator[type]:
    if inspect.isclass(annotation):
        yield annotation
    for each in get_args(annotation):
        yield from _classes(each)


def _kind_page(kind: str) -> str:
    spec = _spec(HOOK_OF_KIND[kind])
    contract = CONTRACTS.get(kind, ())
    parts = [f"# Kind `{kind}`", _text(spec), f"Hook: `{HOOK_OF_KIND[kind]}{inspect.signature(spec)}`".replace("'", "")]
    if contract:
        home = contract[0].__module__.replace(".", "/")
        parts += ["## Contract", f"From [`{home}.py`](../../{home}.py):"]
        parts += [_code(inspect.getsource(each)) for each in contract]
        used = [_code(inspect.getsource(each)) for each in _travelling(contract)]
        parts += ["What its methods take and give:", *used] if used else []
        parts += [FACTORY]
    parts += ["## A complete one", f"`miles plugins new xyz --kind {kind}` makes a package around these files:"]
    for file in sorted((SCAFFOLD / kind).rglob("*")):
        if file.suffix in (".py", ".yaml") and file.name != "__init__.py" and "__pycache__" not in file.parts:
            name = file.relative_to(SCAFFOLD / kind)
            parts += [f"`{name}`", _code(file.read_text(encoding="utf-8"), file.suffix)]
    parts += ["## What `miles plugins check` tries", _promises(kind)]
    return "\n\n".join(parts)


def _hooks_page() -> str:
    events = [name for name in _hook_names() if name not in HOOK_OF_KIND.values()]
    registration = [f"| `{hook}` | [{kind}](kinds/{kind}.md) |" for kind, hook in HOOK_OF_KIND.items()]
    parts = [
        "# Hooks",
        f"Hook API {hookspecs.HOOK_API_VERSION}. A plugin's entry point names a module or an object; its functions "
        "that are marked `@miles_core.hookimpl` and named like a hook implement it. An implementation asks for the "
        "arguments that it needs and leaves out the others. How the version changes: [versions](versions.md).",
        "## Registration",
        "Called once, at activation; each returns `Component`s, which name code as strings and import nothing heavy.",
        "\n".join(["| hook | kind |", "|---|---|", *registration]),
        "## Events and others",
        "Called by the driver when something happened, one listener after the other; what an event hook returns is "
        "ignored, and one that raises is counted and named while the others and the run go on "
        "(`--strict-plugins` stops the run instead).",
    ]
    for name in events:
        spec = _spec(name)
        parts += [f"### `{name}`", _code(f"def {name}{inspect.signature(spec)}".replace("'", "")), _text(spec)]
    return "\n\n".join(parts)


def _hook_names() -> list[str]:
    return [name for name, value in vars(hookspecs).items() if hasattr(value, "miles_spec")]


def _spec(hook: str) -> Any:
    return getattr(hookspecs, hook)


def _text(subject: Any) -> str:
    """The docstring as Markdown: indented examples become code blocks by themselves."""
    return inspect.getdoc(subject) or ""


def _first_line(subject: Any) -> str:
    return _text(subject).splitlines()[0]


def _code(source: str, suffix: str = ".py") -> str:
    language = {".py": "python", ".yaml": "yaml"}[suffix]
    return f"```{language}\n{textwrap.dedent(source).strip()}\n```"


def _travelling(contract: tuple[type, ...]) -> Iterator[type]:
    """The public classes that the signatures of a contract name, in the order of naming."""
    seen: dict[str, type] = {}
    signatures = [line for each in contract for line in _signatures(each)]
    for word in re.findall(r"\b[A-Z]\w+", "\n".join(signatures)):
        found = getattr(miles_core, word, None) if word in miles_core.__all__ else None
        if inspect.isclass(found) and found not in contract and word not in PROTOCOL_NAMES:
            seen.setdefault(word, found)
    yield from seen.values()


PROTOCOL_NAMES = {protocol.__name__ for protocol in PROTOCOLS.values()}


def _signatures(protocol: type) -> list[str]:
    members = (getattr(value, "fget", value) for value in vars(protocol).values())
    return [str(inspect.signature(member)) for member in members if inspect.isfunction(member)]


def _promises(kind: str) -> str:
    rows = [f"| {each.grade} | {each.promise} |" for each in all_checks() if each.kind == kind]
    if not rows:
        return "What is tried of every component; see [testing](../testing.md)."
    return "\n".join(
        ["Beside what is tried of every plugin and component:", "", "| grade | promise |", "|---|---|", *rows]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is not up to date")
    check = parser.parse_args().check
    stale = 0
    for file, text in pages().items():
        there = file.read_text(encoding="utf-8") if file.exists() else ""
        if there == text:
            continue
        stale += 1
        if check:
            lines = difflib.unified_diff(there.splitlines(), text.splitlines(), str(file), "the code", lineterm="", n=0)
            print("\n".join(list(lines)[:12]))
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    if check and stale:
        print(f"{stale} pages are not up to date: run `python docs/generate.py`", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
