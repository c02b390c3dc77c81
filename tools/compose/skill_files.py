"""Skill folders and the files in them, for commands that show them."""

import os
import stat

from omac.adapters.files.nearest import nearest_existing as nearest_existing
from omac.adapters.git.repository import is_git_folder as is_git_folder
from omac.adapters.skills.checking import check_skill as check_skill
from omac.adapters.skills.checking import lookalikes as lookalikes
from omac.adapters.skills.checking import shared_mounts as shared_mounts
from omac.adapters.skills.checking import skills_below as skills_below
from omac.adapters.skills.folders import DiskSkillFolders as DiskSkillFolders
from omac.adapters.skills.new_folder import create_skill as create_skill
from omac.adapters.skills.paths import FILE_FLAGS, open_below, open_folder


def read_start(source: str, relpath: str, bytes_max: int) -> bytes:
    """Return at most so many bytes of a regular file of a skill; no part of its path may be a link. Raises OSError."""
    folder_path, _, name = relpath.rpartition("/")
    with open_folder(source) as top:
        folder = open_below(top, folder_path, source)
        try:
            with open(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(0, "it is not a regular file")
                return file.read(bytes_max)
        finally:
            os.close(folder)
