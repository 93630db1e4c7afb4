"""A property that is computed once, without a lock.

`functools.cached_property` holds one before Python 3.12: a child that is forked while another
thread computes would wait for it for ever. Here two threads may both compute, to the same end.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """`@lazy` above a method without arguments: its first result is kept in the object."""

    def __init__(self, compute: Callable[[Any], T]):
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance, owner):
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
