"""Skill folders and the files in them, for commands that show them."""

from omac.adapters.git.repository import is_git_folder as is_git_folder
from omac.adapters.skills.checking import Neighbours as Neighbours
from omac.adapters.skills.checking import check_skill as check_skill
from omac.adapters.skills.checking import skills_below as skills_below
from omac.adapters.skills.checking import undiscovered as undiscovered
from omac.adapters.skills.contents import start_of as start_of
from omac.adapters.skills.folders import DiskSkillFolders as DiskSkillFolders
from omac.adapters.skills.new_folder import create_skill as create_skill
from omac.journal.folders import nearest_existing as nearest_existing
