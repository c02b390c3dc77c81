"""Skill folders on disk, read as the hostile input they are."""
