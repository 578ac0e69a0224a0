"""The ledger of a run: 16 bytes for each answer of an engine, written where answers arrive from the engines' processes.

`miles audit` makes the same 16 bytes from what was trained. A token, log-prob, version, engine or request that was
changed anywhere between the two makes others. The file only grows: answers that came to nothing stay in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from miles_core.contracts.engine import GenerateResult
from miles_core.errors import RequestError, RunError
from miles_core.types.sequence import Array, Sequence, Span

HEAD = b"miles.ledger  1\n"
SEAL_BYTES = 16


class Ledger:
    """Appends the seal of each answer. Raises RunError when the disk refuses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("ab", buffering=0)  # a driver that is killed has lost none
            if not self._file.tell():
                self._file.write(HEAD)
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=str(path)) from error

    def note(self, request: str, result: GenerateResult) -> None:
        """What an engine answered to the request of this id."""
        runs = [(span.version, span.stop - span.start) for span in result.spans]
        try:
            self._file.write(seal(request, result.engine, runs, result.tokens, result.logprobs))
        except OSError as error:
            raise RunError(f"cannot be written: {error.strerror or error}", where=str(self._path)) from error

    def close(self) -> None:
        self._file.close()


def seal(request: str, engine: str, runs: Iterable[tuple[int, int]], tokens: Array, logprobs: Array) -> bytes:
    """BLAKE2b, 16 bytes, of the request's id, the engine's name, how many tokens were sampled under which version one
    after the other, the tokens (int32) and their log-probs (float32), both little-endian."""
    merged: list[list[int]] = []
    for version, count in runs:
        if merged and merged[-1][0] == version:
            merged[-1][1] += count
        elif count:
            merged.append([version, count])
    digest = hashlib.blake2b(digest_size=SEAL_BYTES)
    digest.update(f"{request}\0{engine}\0{merged}\0".encode())
    digest.update(np.ascontiguousarray(tokens, "<i4").tobytes())
    digest.update(np.ascontiguousarray(logprobs, "<f4").tobytes())
    return digest.digest()


def seals_of(sequence: Sequence) -> dict[str, bytes]:
    """The seal of each request that a sequence has tokens of, by the request's id."""
    if sequence.logprobs is None:
        return {}
    by_request: dict[tuple[str, str], list[Span]] = {}
    for span in sequence.spans:
        by_request.setdefault((span.request, span.engine), []).append(span)
    seals: dict[str, bytes] = {}
    for (request, engine), spans in by_request.items():
        places = np.concatenate([np.arange(span.start, span.stop) for span in spans])
        runs = [(span.version, span.stop - span.start) for span in spans]
        seals[request] = seal(request, engine, runs, sequence.tokens[places], sequence.logprobs[places])
    return seals


def read_ledger(path: Path) -> frozenset[bytes] | None:
    """All seals; None where the run kept no ledger. A half-written last one is left out. Raises RequestError for
    another file."""
    if not path.exists():
        return None
    data = path.read_bytes()
    if not data.startswith(HEAD):
        raise RequestError("is no ledger of this version of Miles", where=str(path))
    seals = range(len(HEAD), len(data) - SEAL_BYTES + 1, SEAL_BYTES)
    return frozenset(data[at : at + SEAL_BYTES] for at in seals)
