"""Skills of one server and a client that keeps cookies, as a browser does: each skill gets back its own cookies only.

The skills set cookies and other fields for all of the host, and answer in omac's name; curl keeps the cookies in a jar.
"""

from pathlib import Path

import pytest
from real_omac import Omac, Serving, curl
from streaming_skill import META

SET = (
    "sid={name}; Path=/; Domain=127.0.0.1",
    "wide={name}; Path=/{other}/",
    "bare={name}",
    "__Host-all={name}; Path=/",
)
OF_THE_HOST = ("Accept-CH: DPR", "NEL: {}", "Report-To: {}", 'Use-As-Dictionary: match="/*"')
PROGRAM = """\
import os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])))
while True:
    connection, _ = listener.accept()
    with connection:
        lines = connection.recv(65536).decode("latin-1").split("\\r\\n")
        body = "; ".join(line for line in lines if line.lower().startswith("cookie:")).encode()
        fields = [f"Set-Cookie: {{one}}" for one in {cookies!r}] if "/set" in lines[0] else []
        fields += {of_the_host!r}
        head = ["HTTP/1.1 200 OK", *fields, "X-Omac-Reason: revoked", f"Content-Length: {{len(body)}}", "", ""]
        connection.sendall("\\r\\n".join(head).encode() + body)
"""


@pytest.fixture(scope="module")
def omac(house: Omac) -> Omac:
    """Return an omac with two projects, each with two such skills, approved."""
    for project in ("one", "two"):
        for name, neighbour in (("red", "blue"), ("blue", "red")):
            cookies = [cookie.format(name=f"{project}-{name}", other=neighbour) for cookie in SET]
            meta = META.format(name=name)
            house.skill(house.root / project, name, meta, PROGRAM.format(cookies=cookies, of_the_host=OF_THE_HOST))
        house.approve(house.root / project, "red", "blue")
    return house


@pytest.fixture(scope="module")
def server(omac: Omac) -> Serving:
    """Start the server that runs the skills."""
    return omac.serve()


@pytest.mark.full
def test_each_skill_has_its_own_cookies(omac: Omac, server: Serving, tmp_path: Path) -> None:
    """A skill sets and gets its own cookies, not those of a neighbour, nor of its namesake in another project."""
    skills = {
        f"{project}-{name}": server.skill(omac.root / project, name)["base"]
        for project in ("one", "two")
        for name in ("red", "blue")
    }
    jar = str(tmp_path / "jar")
    for base in skills.values():
        answer = curl("--cookie-jar", jar, "--cookie", jar, f"{base}/set")
        assert answer.status == 200
        assert answer.body == ""
        assert "x-omac-reason" not in answer.headers
        assert not answer.headers.keys() & {field.partition(":")[0].lower() for field in OF_THE_HOST}
    for name, base in skills.items():
        cookies = curl("--cookie", jar, f"{base}/get").body.removeprefix("Cookie: ")
        assert sorted(cookies.split("; ")) == [f"bare={name}", f"sid={name}"]
    token = skills["one-red"].rpartition("/")[0]
    assert curl("--cookie", jar, f"{token}/nowhere/").status == 404
