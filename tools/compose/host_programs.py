"""The programs of the host that commands run: found where no agent can put one."""

from omac.adapters.linux.host_programs import find as find_program

__all__ = ["find_program"]
