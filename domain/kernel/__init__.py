"""The parts that all contexts of the domain share: aggregates, the names of their streams, and plain data that loads
fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than this whole module
if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform():
        return lambda data: data


@dataclass_transform()
class PlainData:
    """A base for classes that are nothing but fields, each annotated in the order of the arguments, with its default.

    It is for programs whose whole start is a few milliseconds: dataclasses would take longer to load than all the rest.
    """

    def __init__(self, *values: object, **named: object) -> None:
        self.__dict__.update(zip(type(self).__annotations__, values, strict=False), **named)
