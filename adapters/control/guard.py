"""The guard: who may speak to the control plane at all. Authority is the listener, never something a caller says.

The private socket (0600) is for people; TCP wants the bearer token. What agents are given is the bridge's listener: a
socket and a port with a token of their own, which offer a few calls. Host and Origin were judged with the head
(`adapters/http/http1.py`, rule 3): a web page must not reach the control plane, neither by rebinding a name nor by
posting a form.
"""

import hmac
from collections.abc import Collection
from urllib.parse import unquote

from omac.adapters.control.contract import ROOT
from omac.adapters.http.bodies import bad_request
from omac.adapters.http.http1 import RequestHead
from omac.domain.kernel.refusal import Refusal


def check_caller(head: RequestHead, token: str | None, calls: Collection[str] | None) -> None:
    """Raise Refusal for a caller that may not be served: unauthorized without the bearer `token`, if one is wanted;
    forbidden for what is not among the `calls` of the listener, if it has few; foreign-origin for a web page there, of
    whatever place: no bridge is one; bad-request for another protocol (h2c, WebSocket)."""
    if token is not None and not _bears(head, token):
        message = "this listener of omac requires its bearer token"
        raise Refusal("unauthorized", message, fix=["omac status  # uses the socket"])
    if calls is not None and not _is_among(calls, head):
        message = f"this listener offers {', '.join(sorted(calls))}; the rest is for people"
        raise Refusal("forbidden", message, fix=["omac status  # on the host"])
    if calls is not None and any(name.lower() == b"origin" for name, _ in head.headers):
        raise Refusal("foreign-origin", "a web page may not call the listener of agents' bridges; see the Origin field")
    if any(name.lower() == b"upgrade" for name, _ in head.headers):
        raise bad_request("the control plane speaks HTTP/1.1 only and supports no upgrade")


def _is_among(calls: Collection[str], head: RequestHead) -> bool:
    path = unquote(head.target.partition("?")[0])
    return path.startswith(ROOT) and path.removeprefix(ROOT) in calls


def _bears(head: RequestHead, token: str) -> bool:
    values = [value for name, value in head.headers if name.lower() == b"authorization"]
    return len(values) == 1 and hmac.compare_digest(values[0], f"Bearer {token}".encode())
