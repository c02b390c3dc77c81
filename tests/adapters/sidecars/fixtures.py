"""The types of the fixtures for sidecars."""

from collections.abc import Awaitable, Callable

from omac.adapters.linux import process
from omac.adapters.sidecars.process import LinuxSidecarProcess
from omac.domain.sidecars.sidecar import SidecarSpec

MakeSpec = Callable[..., SidecarSpec]
Spawn = Callable[..., Awaitable[LinuxSidecarProcess]]
Members = Callable[[LinuxSidecarProcess], list[process.Stat]]
Printed = Callable[[str], bool]
