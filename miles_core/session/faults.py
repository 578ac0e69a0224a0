"""What a client is told when a call cannot be answered. A dialect turns it into its own error shape."""

from __future__ import annotations

from miles_core.errors import MilesError


class SessionFault(MilesError):
    """A call that was refused or failed. The session is as it was before the call.

    status   the HTTP status
    code     a stable word for programs, e.g. `history_diverged`
    retry    whether the same call may succeed later: clients that retry by themselves are told so
    """

    def __init__(self, status: int, code: str, what: str, *, mend: str = "", retry: bool = False) -> None:
        super().__init__(what, mend=mend)
        self.status = status
        self.code = code
        self.retry = retry

    @property
    def sentence(self) -> str:
        """What is wrong and what to do, on one line."""
        return "; ".join(f"{each.what}{f' ({each.mend})' if each.mend else ''}" for each in self.problems)


def bad_request(what: str, *, code: str = "invalid_request", mend: str = "") -> SessionFault:
    """The request itself is wrong: status 400."""
    return SessionFault(400, code, what, mend=mend)
