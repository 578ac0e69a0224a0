"""The text formats that describe an installed distribution, as far as the scan needs them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_MALFORMED = re.compile(r"^(?![ \t]*(?:[#;\[]|$))[^=\n]*$", re.MULTILINE)
_SECTION = re.compile(r"^[ \t]*\[([^\]\n]*)\][ \t]*$", re.MULTILINE)
_HEADER = re.compile(r"^(Name|Version|Summary|Requires-Dist|Project-URL|Home-page):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


class Headers(NamedTuple):
    """The headers of METADATA or PKG-INFO that a listing shows; "" where there is none."""

    name: str
    version: str
    summary: str
    requires: tuple[str, ...]
    homepage: str = ""
    issues: str = ""


def normalise(name: str) -> str:
    """The PEP 503 form of a name: `Miles.Plugin_C` is `miles-plugin-c`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def malformed_place(text: str) -> tuple[int, str] | None:
    """Number and text of the first malformed line of an entry_points.txt; None when every line is sound."""
    for match in _MALFORMED.finditer(text):
        if match.group().strip():
            return text.count("\n", 0, match.start()) + 1, match.group().strip()
    return None


def read_sections(text: str, groups: Sequence[str]) -> dict[str, dict[str, str]]:
    """`name = value` of the named groups of an entry_points.txt, in order; the last value of a name counts."""
    sections: dict[str, dict[str, str]] = {group: {} for group in groups}
    parts = _SECTION.split(text)
    for group, body in zip(parts[1::2], parts[2::2], strict=True):
        if group.strip() not in sections:
            continue
        for line in body.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                sections[group.strip()][name.strip()] = value.strip()
    return sections


def read_headers(text: str) -> Headers:
    """The headers before the first blank line; what follows it is the description."""
    head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    fields: dict[str, list[str]] = {}
    for key, value in _HEADER.findall(head):
        fields.setdefault(key, []).append(value)
    urls = _urls(fields)
    first = {key: values[0] for key, values in fields.items()}
    return Headers(
        name=first.get("Name", ""),
        version=first.get("Version", ""),
        summary=first.get("Summary", ""),
        requires=tuple(fields.get("Requires-Dist", ())),
        homepage=first.get("Home-page", "") or _named(urls, ("homepage", "home", "repository", "source")),
        issues=_named(urls, ("issues", "tracker", "bugs")),
    )


def _urls(fields: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """`Project-URL: Label, address`, by label in lower case."""
    split = (line.partition(",") for line in fields.get("Project-URL", ()))
    return {label.strip().lower(): url.strip() for label, _, url in split}


def _named(urls: Mapping[str, str], words: Sequence[str]) -> str:
    """The address whose label holds one of the words, the first word before the others."""
    return next((url for word in words for label, url in urls.items() if word in label), "")


def is_editable(direct_url: bytes | None) -> bool:
    """Whether a direct_url.json (PEP 610) says that the distribution runs from its source folder."""
    return direct_url is not None and re.search(rb'"editable"\s*:\s*true', direct_url) is not None
