"""The sockets of a run: the facade's, the control plane's and those of agents' bridges, each on loopback TCP and on a
private Unix socket.
"""

import os
import secrets
import socket

from omac.adapters.control.server import ControlListener
from omac.adapters.facade.server import FacadeListener
from omac.adapters.http.slots import SlotLimits, share_descriptors
from omac.adapters.linux import listen
from omac.domain.access.control import BRIDGE_CALLS, COMPAT_CALLS, WITNESS_CALLS, Listener
from omac.tools.compose.endpoints import Ready
from omac.tools.compose.serve_options import ServeOptions

CONTROL_TOKEN, BRIDGE_TOKEN = "control.token", "bridge.token"  # files in the run's folder


class Listening:
    """Bound sockets; the servers that serve them close them. `witness_token` is what other omacs bring that deliver
    checkpoints. Making one raises Refusal for a port that is taken."""

    def __init__(self, options: ServeOptions, folder: str, descriptors_max: int, witness_token: str = "") -> None:
        self._folder = folder
        self._bridge_compat = options.bridge_compat
        self.tokens = {CONTROL_TOKEN: secrets.token_hex(32), BRIDGE_TOKEN: secrets.token_hex(32)}  # by their files
        self._one_directory = options.beside
        self._shares = share_descriptors(descriptors_max)
        self._facade_tcp = listen.tcp(options.facade.host, options.facade.port, "--facade-addr")
        self._facade_unix = listen.unix(os.path.join(folder, "facade.sock"))
        self._control_tcp = listen.tcp(options.control.host, options.control.port, "--control-addr")
        self._control_unix = listen.unix(os.path.join(folder, "control.sock"))
        self._bridge_tcp = listen.tcp("127.0.0.1", 0, "--control-addr")
        self._bridge_unix = listen.unix(os.path.join(folder, "bridge.sock"))
        at = options.witness
        self._witness_tcp = listen.tcp(at.host, at.port, "--witness-addr") if at else None
        self._witness_token = witness_token

    def endpoints(self, journal: str, run: str) -> Ready:
        """Return where the run can be reached."""
        return Ready(
            listen.http_base(self._control_tcp), self._control_unix.getsockname(),
            os.path.join(self._folder, CONTROL_TOKEN), listen.http_base(self._facade_tcp),
            self._facade_unix.getsockname(), journal, run,
        )  # fmt: skip

    def for_bridge(self, ready: Ready) -> Ready:
        """Return where an agent and its bridge reach the run."""
        token_file = os.path.join(self._folder, BRIDGE_TOKEN)
        return ready.for_bridge(listen.http_base(self._bridge_tcp), self._bridge_unix.getsockname(), token_file)

    @property
    def witness_base(self) -> str:
        """The URL to which other omacs deliver checkpoints; "" for none."""
        return listen.http_base(self._witness_tcp) if self._witness_tcp else ""

    def data_plane(self) -> list[FacadeListener]:
        """Return the facade's listeners, each with the connections that it may have."""
        return [
            FacadeListener(self._facade_tcp, self._shares.facade_tcp),
            self._own(self._facade_unix),
        ]

    def control_plane(self) -> list[ControlListener]:
        """Return the control plane's listeners; the one on TCP and those of bridges want a token of their own."""
        shares, token = self._shares, self.tokens[CONTROL_TOKEN]
        witness = [self._for_witness(self._witness_tcp)] if self._witness_tcp else []
        return [
            *witness,
            ControlListener("socket", self._control_unix, None, shares.control_unix),
            ControlListener("tcp", self._control_tcp, token, shares.control_tcp),
            self._for_bridges(self._bridge_tcp, shares.bridge_tcp),
            self._for_bridges(self._bridge_unix, shares.bridge_unix),
        ]

    def data_again(self, bound: socket.socket) -> list[FacadeListener]:
        """Return a listener in the place of the facade's Unix socket, whose file was removed."""
        return [self._own(bound)]

    def _own(self, bound: socket.socket) -> FacadeListener:
        """The run's own socket. With one directory whoever can open it may use that directory's skills."""
        return FacadeListener(bound, self._shares.facade_unix, unix=True, flat=self._one_directory)

    def control_again(self, authority: Listener, bound: socket.socket) -> list[ControlListener]:
        """Return a listener in the place of a Unix socket of the control plane, whose file was removed."""
        if authority == "bridge":
            return [self._for_bridges(bound, self._shares.bridge_unix)]
        return [ControlListener(authority, bound, None, self._shares.control_unix)]

    def _for_witness(self, bound: socket.socket) -> ControlListener:
        """A listener for other omacs, with a token that is good for nothing else."""
        token, slots = self._witness_token, self._shares.control_tcp
        return ControlListener("tcp", bound, token, slots, WITNESS_CALLS)

    def _for_bridges(self, bound: socket.socket, slots: SlotLimits) -> ControlListener:
        """A listener for agents' bridges; those that were written for the Go omac bring no token."""
        compat = self._bridge_compat
        token, calls = (None, COMPAT_CALLS) if compat else (self.tokens[BRIDGE_TOKEN], BRIDGE_CALLS)
        return ControlListener("bridge", bound, token, slots, calls)
