"""Keys of omac.yaml that omac does not know: ignored, so that a skill written for a later omac keeps working."""

from omac.domain.credentials.values import shown
from omac.domain.skills.document import SECTIONS, UNREAD, below, without_indices
from omac.domain.skills.skill import UnknownKey


def without_unknown_keys(document: object) -> tuple[object, tuple[UnknownKey, ...]]:
    """Return a decoded omac.yaml with the known keys of each section only, and the other keys."""
    unknown: list[UnknownKey] = []
    return _known(document, "", "", unknown), tuple(unknown)


def explain(unknown: UnknownKey) -> str:
    """Return a sentence that names the key and what was probably meant."""
    place = f"in {unknown.where}" if unknown.where else "at the top level"
    if unknown.key is None:
        return f"omac.yaml has a key {place} that is not text; it is ignored"
    known = SECTIONS[without_indices(unknown.where)].__struct_fields__
    elsewhere = [path for path, form in SECTIONS.items() if path and unknown.key in form.__struct_fields__]
    nearest = [] if elsewhere else _nearest(unknown.key, known)
    meant = [below(path, unknown.key) for path in elsewhere] + [below(unknown.where, key) for key in nearest]
    hint = f"did you mean {' or '.join(meant)}?" if meant else f"the keys there are {', '.join(known)}"
    return f"omac.yaml has an unknown key {shown(unknown.key)} {place}, which is ignored; {hint}"


def _known(value: object, where: str, section: str, unknown: list[UnknownKey]) -> object:
    form = SECTIONS.get(section)
    if form is None or not isinstance(value, dict):
        return value
    known: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            unknown.append(UnknownKey(where, None))
        elif key in form.__struct_fields__:
            known[key] = _below(item, below(where, key), below(section, key), unknown)
        elif section or key not in UNREAD:
            unknown.append(UnknownKey(where, key))
    return known


def _below(value: object, where: str, section: str, unknown: list[UnknownKey]) -> object:
    if isinstance(value, list):
        return [_known(item, f"{where}[{index}]", section, unknown) for index, item in enumerate(value)]
    return _known(value, where, section, unknown)


def _nearest(key: str, known: tuple[str, ...]) -> list[str]:
    from difflib import get_close_matches  # here, for few files have such a key

    return get_close_matches(key, known, n=1)
