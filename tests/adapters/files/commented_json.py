"""JSON texts as people write them by hand, for property tests."""

from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
BLANKS = st.sampled_from(["", " ", "\n", "\r\n\t", " // c\n", "/* c */", " /* , ] */\n  ", "//\r\n"])


@st.composite
def commented(draw: st.DrawFn, depth: int = 2) -> str:
    """Draw a JSON text as people write it by hand."""

    def blank() -> str:
        return draw(BLANKS)

    if not depth or draw(st.booleans()):
        return draw(st.sampled_from(["1", "-0.5e3", '"a, // b"', "null", "{}", "[]", '"\\u00e9"']))
    parts = [draw(commented(depth - 1)) for _ in range(draw(st.integers(0, 3)))]
    is_object = draw(st.booleans())
    items = [f'{blank()}"k{i}"{blank()}:' * is_object + blank() + part + blank() for i, part in enumerate(parts)]
    end = draw(st.sampled_from(["", "," + blank()])) if items else blank()
    return ("{%s%s}" if is_object else "[%s%s]") % (",".join(items), end)
