"""A real bubblewrap that is held at the moment at which it sets up a namespace, as omac starts it for a sidecar."""

import json
import os
import subprocess

import trio

from omac.adapters.linux import host_programs, process
from omac.adapters.sidecars import launch


async def held(name: str, held_by: int) -> tuple[subprocess.Popen[bytes], process.Stat]:
    """Start a bubblewrap that sets up a namespace for as long as the pipe `held_by` is open; return it and its init,
    which waits for it. `name` is used instead of omac's in the command line."""
    bwrap = host_programs.find("bwrap")
    info, more = os.memfd_create("info"), os.memfd_create("more")
    os.write(more, b"\0".join([b"--unshare-user", b"--userns-block-fd", str(held_by).encode(), b""]))
    os.lseek(more, 0, os.SEEK_SET)
    line = [name if word == "omac-gate" else word for word in launch.command_line(bwrap, info, more)]
    outer = launch.start([*line, "true"], {}, "/", subprocess.DEVNULL, pass_fds=(info, more, held_by))
    os.close(more)
    while not (report := os.pread(info, 4096, 0)).rstrip().endswith(b"}"):
        await trio.sleep(0.001)
    os.close(info)
    init = process.stat(json.loads(report)["child-pid"])
    assert init is not None
    return outer, init
