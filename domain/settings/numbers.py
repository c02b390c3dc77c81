"""Numbers as the word of a setting: "none", one number, or one with others for single skills, "8,slack=2"."""

import re

import msgspec

_NUMBER = re.compile(r"[1-9][0-9]{0,14}")
_SKILL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as skills are named
NONE = "none"
SKILLS_MAX = 256  # that one word may name


class Numbers(msgspec.Struct, frozen=True):
    """The numbers that a setting takes; `by_skill`: single skills may have their own. `example` is a usual one."""

    least: int
    most: int
    example: int
    by_skill: bool = False

    def takes(self, word: str) -> bool:
        """Return whether a word consists of numbers that the setting takes."""
        numbers = numbers_of(word)
        if numbers is None or (not self.by_skill and set(numbers) != {""}):
            return False
        return all(number is None or self.least <= number <= self.most for number in numbers.values())

    def __str__(self) -> str:
        single = f", and others for single skills ({self.example},slack=none)" if self.by_skill else ""
        return f"none or a whole number from {self.least} to {self.most}{single}"


def numbers_of(word: str) -> dict[str, int | None] | None:
    """Return the numbers of a word by skill ("": all others), None in place of a number for no limit. Return None for a
    word that is not valid, has two numbers for one skill, or names more than SKILLS_MAX skills."""
    numbers: dict[str, int | None] = {}
    for part in word.split(","):
        name, equals, number = part.strip(" ").rpartition("=")
        if name in numbers or (equals and not _SKILL.fullmatch(name)) or len(numbers) > SKILLS_MAX:
            return None
        if number != NONE and not _NUMBER.fullmatch(number):
            return None
        numbers[name] = None if number == NONE else int(number)
    return numbers
