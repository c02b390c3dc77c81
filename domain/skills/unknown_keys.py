"""Keys of omac.yaml that omac does not know: ignored, so that a skill written for a later omac keeps working."""

from omac.domain.skills.document import SECTIONS, UNREAD, below, without_indices
from omac.domain.skills.meta import UnknownKey
from omac.domain.skills.values import shown


def without_unknown_keys(document: object) -> tuple[object, tuple[UnknownKey, ...]]:
    """Return a decoded omac.yaml with the known keys that have a value in each section, and the unknown keys."""
    unknown: list[UnknownKey] = []
    return _known(document, "", "", unknown), tuple(unknown)


def explain(unknown: UnknownKey) -> str:
    """Return a sentence that names the key and what was probably meant."""
    location = f"in {unknown.where}" if unknown.where else "at the top level"
    if unknown.key is None:
        return f"omac.yaml has a key {location} that is not text; it is ignored"
    known = SECTIONS[without_indices(unknown.where)].__struct_fields__
    suggestion = _in_another_section(unknown.key) or _nearest(unknown, known)
    hint = f"did you mean {suggestion}?" if suggestion else f"known keys: {', '.join(known)}"
    return f"omac.yaml has an unknown key {shown(unknown.key)} {location}, which is ignored; {hint}"


def _known(value: object, where: str, section: str, unknown: list[UnknownKey]) -> object:
    form = SECTIONS.get(section)
    if form is None or not isinstance(value, dict):
        return value
    known: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            unknown.append(UnknownKey(where, None))
        elif key in form.__struct_fields__:
            if item is not None:  # then it is absent
                known[key] = _below(item, below(where, key), below(section, key), unknown)
        elif section or key not in UNREAD:
            unknown.append(UnknownKey(where, key))
    return known


def _below(value: object, where: str, section: str, unknown: list[UnknownKey]) -> object:
    if isinstance(value, list):
        return [_known(item, f"{where}[{index}]", section, unknown) for index, item in enumerate(value)]
    return _known(value, where, section, unknown)


def _in_another_section(key: str) -> str:
    """Return the path of a key that exactly one section has."""
    sections = [section for section, form in SECTIONS.items() if key in form.__struct_fields__]
    if len(sections) != 1:
        return ""
    return below(sections[0], key) if sections[0] else f"{key} at the top level"


def _nearest(unknown: UnknownKey, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # here, for few files have such a key

    return "".join(below(unknown.where, key) for key in get_close_matches(unknown.key or "", known, n=1))
