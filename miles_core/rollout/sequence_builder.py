"""Building a sequence turn by turn: what stood in the prompt is masked, what an engine sampled is kept exactly."""

from __future__ import annotations

import numpy as np

from miles_core.contracts.engine import GenerateRequest, GenerateResult
from miles_core.errors import ValidationError
from miles_core.types.image import ImageSpan, ImageSpans
from miles_core.types.sequence import NO_VERSION, Array, Sequence, Span, TokenArray


class SequenceBuilder:
    """For generators that ask an engine more than once about one conversation:

    row = SequenceBuilder()
    row.add(renderer.render(messages))                  # masked; with images: rendered(renderer, messages)
    request = GenerateRequest(…, tokens=row.tokens, …)
    row.add_sampled(request, await engines.generate(request))
    row.add(renderer.bridge(row.tokens, answer))        # masked again, and so on
    sequence = row.build()
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._spans: list[Span] = []
        self._routing: tuple[int, Array] | None = None
        self._images: list[ImageSpan] = []

    @property
    def tokens(self) -> TokenArray:
        """All tokens so far, int32 [n], in an array of its own."""
        return np.array(self._tokens, np.int32)

    @property
    def images(self) -> ImageSpans:
        """All images so far, for `GenerateRequest.images`."""
        return tuple(self._images)

    @property
    def sampled_count(self) -> int:
        return sum(span.stop - span.start for span in self._spans)

    def add(self, tokens: TokenArray, images: ImageSpans = ()) -> None:
        """Tokens that nobody sampled: a prompt, the environment's answer. `images` count from the first of them."""
        self._images += [span.moved(len(self._tokens)) for span in images]
        self._tokens += tokens.tolist()
        self._logprobs += [0.0] * len(tokens)

    def add_sampled(self, request: GenerateRequest, result: GenerateResult, turn: int = 0) -> None:
        """What an engine made of a request. Raises ValidationError when the request was not for the tokens so far:
        the log-probs would then belong to another context."""
        if request.tokens.tolist() != self._tokens:
            raise ValidationError(
                f"GenerateRequest.tokens of request {request.id!r} are not the {len(self._tokens)} tokens of the row",
                mend="ask with `tokens=row.tokens`",
            )
        ours, theirs = self._images, request.images
        if [(s.start, s.stop, s.image.digest) for s in ours] != [(s.start, s.stop, s.image.digest) for s in theirs]:
            raise ValidationError(
                f"GenerateRequest.images of request {request.id!r} are not the {len(ours)} images of the row",
                mend="ask with `images=row.images`",
            )
        start = len(self._tokens)
        temperature = request.sampling.temperature
        self._spans += [
            Span(start + span.start, start + span.stop, span.version, result.engine, request.id, turn, temperature)
            for span in result.spans
        ]
        self._tokens += result.tokens.tolist()
        self._logprobs += result.logprobs.tolist()
        if result.routing is not None:
            self._routing = (len(self._tokens), result.routing)

    def build(self) -> Sequence:
        """The row. Routing is that of the last request, when nothing follows what it sampled."""
        n = len(self._tokens)
        sampled = np.zeros(n, np.bool_)
        versions = np.full(n, NO_VERSION, np.int32)
        for span in self._spans:
            sampled[span.start : span.stop] = True
            versions[span.start : span.stop] = span.version
        end, routing = self._routing or (0, None)
        return Sequence(
            tokens=self.tokens,
            sampled=sampled,
            logprobs=np.array(self._logprobs, np.float32),
            versions=versions,
            spans=tuple(self._spans),
            routing=routing if end == n else None,
            images=self.images,
        )
