"""GLM-4.5 of the library, with a line end that it leaves out.

The checkpoints' template writes a line end before each call of a turn. The library does so before every call of a turn
without text, and before the first call alone of one with text. A histories' turn, or a demonstration of one, would then
stand in tokens that the template never writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from renderers.glm45 import GLM45Renderer


class Glm45(GLM45Renderer):
    """As the library's; whatever stands between two calls of a turn, there is a line end."""

    def _render_assistant(
        self,
        msg: Any,
        msg_idx: int,
        content: str,
        last_user_index: int,
        *,
        emit_special: Callable[..., None],
        emit_text: Callable[..., None],
        emit_text_segments: Callable[..., None],
    ) -> None:
        closed = False  # whether the last thing written ended a call

        def special(token: int, index: int, **masks: bool) -> None:
            nonlocal closed
            if closed and token == self._tool_call_tok:
                emit_text("\n", index, **masks)
            emit_special(token, index, **masks)
            closed = token == self._tool_call_end_tok

        def text(written: str, index: int, **masks: bool) -> None:
            nonlocal closed
            emit_text(written, index, **masks)
            closed = False

        super()._render_assistant(
            msg,
            msg_idx,
            content,
            last_user_index,
            emit_special=special,
            emit_text=text,
            emit_text_segments=emit_text_segments,
        )
