"""The sockets of a run: the facade's and the control plane's, each on loopback TCP and on a private Unix socket."""

import os
import socket

from omac.adapters.control.server import ControlListener
from omac.adapters.facade.server import FacadeListener
from omac.adapters.http.slots import share_descriptors
from omac.adapters.linux import listen
from omac.domain.access.control import Listener
from omac.tools.cli.serve_options import ServeOptions
from omac.tools.compose.endpoints import Ready


class Listening:
    """Bound sockets; the servers that serve them close them. Making one raises Refusal for a port that is taken."""

    def __init__(self, options: ServeOptions, folder: str, descriptors_max: int) -> None:
        self._folder = folder
        self._one_directory = options.beside
        self._shares = share_descriptors(descriptors_max)
        self._facade_tcp = listen.tcp(options.facade.host, options.facade.port, "--facade-addr")
        self._facade_unix = listen.unix(os.path.join(folder, "facade.sock"))
        self._control_tcp = listen.tcp(options.control.host, options.control.port, "--control-addr")
        self._control_unix = listen.unix(os.path.join(folder, "control.sock"))

    def endpoints(self, journal: str, run: str) -> Ready:
        """Return where the run can be reached."""
        return Ready(
            listen.http_base(self._control_tcp), self._control_unix.getsockname(),
            os.path.join(self._folder, "control.token"), listen.http_base(self._facade_tcp),
            self._facade_unix.getsockname(), journal, run,
        )  # fmt: skip

    def data_plane(self) -> list[FacadeListener]:
        """Return the facade's listeners, each with the connections that it may have."""
        return [
            FacadeListener(listen.listener(self._facade_tcp), self._shares.facade_tcp),
            self._own(self._facade_unix),
        ]

    def control_plane(self, token: str) -> dict[Listener, ControlListener]:
        """Return the control plane's listeners; the one on TCP wants `token`."""
        return {
            "socket": ControlListener(listen.listener(self._control_unix), None, self._shares.control_unix),
            "tcp": ControlListener(listen.listener(self._control_tcp), token, self._shares.control_tcp),
        }

    def data_again(self, bound: socket.socket) -> list[FacadeListener]:
        """Return a listener in the place of the facade's Unix socket, whose file was removed."""
        return [self._own(bound)]

    def _own(self, bound: socket.socket) -> FacadeListener:
        """The run's own socket. With one directory whoever can open it may use that directory's skills."""
        return FacadeListener(listen.listener(bound), self._shares.facade_unix, unix=True, flat=self._one_directory)

    def control_again(self, bound: socket.socket) -> dict[Listener, ControlListener]:
        """Return a listener in the place of the control plane's Unix socket, whose file was removed."""
        return {"socket": ControlListener(listen.listener(bound), None, self._shares.control_unix)}
