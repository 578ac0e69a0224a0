"""The version of the hooks, apart from the hooks: listings compare it without loading them."""

HOOK_API_VERSION = "1.2"
"""Minor: a hook or an argument was added. Major: one was removed or changed its meaning."""


def keeps(declared: str, host: str = HOOK_API_VERSION) -> bool | None:
    """Whether a host keeps what a plugin was written for: the same MAJOR, at least its MINOR. None when `declared` is
    not of the form MAJOR.MINOR."""
    major, dot, minor = declared.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        return None
    ours = host.split(".")
    return int(major) == int(ours[0]) and int(minor) <= int(ours[1])
