"""Attributes of classes and modules that are others for a while."""

from typing import Any, Callable


class Patch:
    """An attribute of a class or a module that is another one until remove()."""

    def __init__(self, owner: Any, name: str, replaces: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._owner, self._name = owner, name
        self._original = owner.__dict__[name]
        self._replacement = replaces(self._original)
        setattr(owner, name, self._replacement)

    def remove(self) -> None:
        """Ends it. Where others replaced the attribute since, theirs stays, and goes on to call this one."""
        if self._owner.__dict__.get(self._name) is self._replacement:
            setattr(self._owner, self._name, self._original)
