"""The attacks of a sandboxed program on its host, each beside a harmless twin.

An attack is Python that runs inside, below PRELUDE; it prints ESCAPED if it succeeds, and may fail in any other way.
`lost` judges on the host whether it did harm. `twin` must print OK. `control`: the same program succeeds outside, which
proves that the attack is one.
"""

from collections.abc import Callable
from typing import NamedTuple

from escape.victim import Victim

PRELUDE = """\
import ctypes, errno, mmap, os, platform, signal, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == 'aarch64'
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def fails(*errors):
    'what an attack may meet: anything but success'
    return errors
VICTIM, HOME, TOP, PID, NAME, PORT, SOCKET, TOKEN, STATE, OTHER, KEY, PTS, FD = {values!r}
"""


class Attack(NamedTuple):
    """An attack and its twin. Without `lost` only the output counts. `options` are those of `omac sandbox run`.

    `landlock`: "same" as under bubblewrap; "declared": Landlock alone does not prevent it, as SECURITY.md declares
    under `exception`. `alone`: in a sandbox of its own, with
    descriptors of the victim's left open for it; the others run one after the other in one that stays open
    (`runner.Runner`).
    """

    name: str
    source: str
    twin: str
    lost: Callable[[Victim], bool] | None = None
    control: bool = False
    options: tuple[str, ...] = ()
    landlock: str = "same"
    exception: str = ""
    landlock_twin: str = ""
    alone: bool = False


def changed(victim: Victim) -> bool:
    """Return whether the file that is not the program's has been touched."""
    return victim.changed()


def dead(victim: Victim) -> bool:
    """Return whether the process that is not the program's has ended."""
    return not victim.alive()


WRITE_TWIN = "open('mine', 'w').write('x'); print('OK')"
NONE = ("--network", "none")

FILES = (
    Attack("write outside", "open(VICTIM, 'w').write('x')", WRITE_TWIN, changed, control=True),
    Attack("append outside", "open(VICTIM, 'a').write('x')", WRITE_TWIN, changed, control=True),
    Attack(
        "truncate outside", "os.truncate(VICTIM, 0)", "open('t','w').write('xx'); os.truncate('t',1); print('OK')",
        changed, control=True,
    ),
    Attack("remove outside", "os.unlink(VICTIM)", "open('u','w'); os.unlink('u'); print('OK')", changed, control=True),
    Attack(
        "read a secret of the home", "print('ESCAPED' if TOKEN in open(HOME + '/.ssh/id').read() else '')",
        "open('r','w').write('r'); print('OK' if open('r').read() == 'r' else '')", control=True,
    ),
    Attack(
        "through a symbolic link", "os.symlink(VICTIM, 'link'); open('link', 'w').write('x')",
        "open('to','w'); os.symlink('to', 'fine'); open('fine','w').write('x'); print('OK')", changed, control=True,
    ),
    Attack(
        "through a hard link", "os.link(VICTIM, 'hard'); open('hard', 'w').write('x')",
        "open('a1','w'); os.link('a1', 'a2'); open('a2','w').write('x'); print('OK' if open('a1').read() else '')",
        changed, control=True,
    ),
    Attack(
        "through the process's root", "open('/proc/self/root' + VICTIM, 'w').write('x')",
        "open('/proc/self/cwd/pc','w').write('x'); print('OK' if open('pc').read() else '')", changed, control=True,
    ),
    Attack(
        "through the first process's root",
        "[open(f'/proc/{pid}/root' + VICTIM, 'w').write('x') for pid in (1, 2)]", WRITE_TWIN, changed, alone=True,
    ),
    Attack(
        "up from the working directory",
        "os.chdir('../' * 30 + TOP.lstrip('/')); open(os.path.basename(VICTIM), 'w').write('x')",
        "os.mkdir('sub'); os.chdir('sub'); open('../up','w').write('x'); print('OK')", changed, control=True,
    ),
    Attack(
        "through a folder that was open",
        "fd = os.open('/proc/self/fd/%d/' % FD + os.path.basename(VICTIM), os.O_WRONLY); os.write(fd, b'x')",
        "fd = os.open('.', os.O_RDONLY); os.close(os.open('df', os.O_CREAT | os.O_WRONLY, dir_fd=fd)); print('OK')", changed, alone=True,
    ),
    Attack(
        "by a handle (open_by_handle_at)",
        "h = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)); m = ctypes.c_int()\n"
        "call(264 if ARM else 303, -100, os.fsencode(VICTIM), h, ctypes.byref(m), 0)\n"
        "fd = call(265 if ARM else 304, os.open('/', os.O_RDONLY), h, os.O_WRONLY); os.write(fd, b'x')",
        WRITE_TWIN, changed,
    ),
    Attack(
        "change its mode", "os.chmod(VICTIM, 0o666)", "open('cm','w'); os.chmod('cm', 0o750); print('OK')", changed,
        control=True, landlock="declared", exception="permission bits",
    ),
    Attack(
        "change its times", "os.utime(VICTIM, (1, 1))", "open('ut','w'); os.utime('ut', (1, 1)); print('OK')", changed,
        control=True, landlock="declared", exception="times",
    ),
    Attack(
        "rename the project away", "os.rename(os.getcwd(), os.getcwd() + '-gone')",
        "os.mkdir('d1'); os.rename('d1', 'd2'); print('OK')",
        lambda victim: not victim.world.workdir.is_dir(), control=True,
    ),
    Attack(
        "plant start-up files",
        "for name in ('.bashrc', '.profile', '.zshenv', '.config/autostart/x.desktop', '.config/systemd/user/x.service'):\n"
        "    path = HOME + '/' + name; os.makedirs(os.path.dirname(path), exist_ok=True); open(path, 'w').write('evil')",
        "open('.bashrc','w').write('of the project'); print('OK')",
        lambda victim: any((victim.world.home / name).exists() for name in (".bashrc", ".profile", ".zshenv", ".config")),
    ),
    Attack(
        "plant in system folders",
        "for path in ('/etc/cron.d/x', '/etc/ld.so.preload', '/usr/local/bin/git', '/etc/profile.d/x.sh', '/var/spool/cron/x'):\n"
        "    try: open(path, 'w').write('x'); print('ESCAPED')\n    except OSError: pass",
        "print('OK' if open('/etc/passwd').read() else '')",
    ),
    Attack(
        "read and write omac's own",
        "try: open(STATE + '/spool/planted.json', 'w').write('{}')\nexcept OSError: pass\n"
        "print('ESCAPED' if TOKEN in open(STATE + '/journal.db').read() else '')",
        WRITE_TWIN, lambda victim: (victim.world.state / "spool" / "planted.json").exists(), control=True,
    ),
    Attack(
        "poison another project's cache", "open(OTHER + '/planted', 'w').write('x')",
        "open(os.environ['OMAC_CACHE_DIR'] + '/mine', 'w').write('x'); print('OK')",
        lambda victim: (victim.other_cache / "planted").exists(), control=True,
    ),
    Attack(
        "find other projects' caches",
        "print('ESCAPED' if any(os.path.basename(os.path.dirname(OTHER)) == n for n in os.listdir(HOME + '/.cache/omac')) else '')",
        "print('OK' if os.path.isdir(os.environ['OMAC_CACHE_DIR']) else '')", control=True,
    ),
    Attack(
        "leave a set-uid program",
        "import shutil; shutil.copy('/bin/sh', 'suid')\n"
        "for way in (lambda: os.chmod('suid', 0o6755), lambda: os.fchmod(os.open('suid', os.O_RDONLY), 0o4755),\n"
        "            lambda: os.open('suid2', os.O_CREAT | os.O_WRONLY, 0o4755), lambda: call(452, -100, b'suid', 0o4755, 0)):\n"
        "    try: way()\n    except OSError: pass",
        "import shutil; shutil.copy('/bin/true', 'ok'); os.chmod('ok', 0o755); subprocess.run(['./ok'], check=True); print('OK')",
        lambda victim: any(path.lstat().st_mode & 0o6000 for path in victim.world.workdir.glob("suid*")),
    ),
    Attack(
        "make a device",
        "os.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(254, 0)); os.open('disk', os.O_RDONLY); print('ESCAPED')",
        "open('/dev/null','w').write('x'); print('OK')",
    ),
    Attack(
        "open what the machine is made of",
        "for path in ('/dev/mem', '/dev/kmsg', '/dev/vda', '/dev/sda', '/dev/fuse', '/dev/kvm', '/dev/net/tun', '/proc/kcore'):\n"
        "    try: os.open(path, os.O_RDWR); print('ESCAPED')\n    except OSError: pass",
        "print('OK' if len(os.urandom(8)) == 8 and os.open('/dev/zero', os.O_RDONLY) else '')",
    ),
    Attack(
        "set what the kernel runs on a crash", "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/false'); print('ESCAPED')",
        "print('OK' if open('/proc/sys/kernel/ostype').read() else '')",
    ),
    Attack(
        "other settings of the kernel",
        "for path in ('/proc/sys/kernel/modprobe', '/proc/sys/vm/drop_caches', '/proc/sysrq-trigger', '/proc/sys/kernel/hostname'):\n"
        "    try: os.close(os.open(path, os.O_WRONLY)); print('ESCAPED')\n    except OSError: pass",
        "print('OK' if open('/proc/meminfo').read() else '')",
    ),
    Attack(
        "control groups and the bus of devices",
        "for path in ('/sys/fs/cgroup', '/sys/kernel', '/sys/class/net/lo/flags', '/sys/fs/cgroup/memory/release_agent'):\n"
        "    try: os.close(os.open(path + ('/x' if os.path.isdir(path) else ''), os.O_WRONLY | os.O_CREAT)); print('ESCAPED')\n"
        "    except OSError: pass",
        WRITE_TWIN,
    ),
    Attack(
        "overwrite the program that built the sandbox",
        "for pid in (1, os.getpid(), os.getppid()):\n"
        "    try: os.open(f'/proc/{pid}/exe', os.O_WRONLY); print('ESCAPED')\n    except OSError: pass",
        "print('OK' if os.readlink('/proc/self/exe') else '')", alone=True,
    ),
    Attack(
        "type into another terminal", "fd = os.open(PTS, os.O_RDWR | os.O_NOCTTY); os.write(fd, b'evil')\nprint('ESCAPED')",
        "import pty; a, b = pty.openpty(); os.write(b, b'x'); print('OK')", control=True,
        landlock_twin="print('OK' if sys.stdout.write('') == 0 else '')",
    ),
)  # fmt: skip

PROCESSES = (
    Attack(
        "end a process of the host", "os.kill(PID, 9)",
        "p = subprocess.Popen(['sleep', '60']); os.kill(p.pid, 9); print('OK' if p.wait() == -9 else '')", dead,
    ),
    Attack(
        "end every process", "signal.signal(15, signal.SIG_IGN); os.kill(-1, 15); os.killpg(PID, 9)", WRITE_TWIN, dead, alone=True,
    ),
    Attack(
        "end by a descriptor of a process", "signal.pidfd_send_signal(os.pidfd_open(PID), 9)",
        "p = subprocess.Popen(['sleep', '60']); signal.pidfd_send_signal(os.pidfd_open(p.pid), 9); print('OK' if p.wait() else '')",
        dead,
    ),
    Attack(
        "read another's environment", "print('ESCAPED' if TOKEN.encode() in open(f'/proc/{PID}/environ','rb').read() else '')",
        "print('OK' if open('/proc/self/environ').read() else '')", control=True,
    ),
    Attack(
        "read every environment there is",
        "import glob\nfor path in glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: print('ESCAPED' if TOKEN.encode() in open(path,'rb').read() else '')\n    except OSError: pass",
        "print('OK' if os.environ['PATH'] else '')", control=True,
    ),
    Attack(
        "read another's memory", "os.open(f'/proc/{PID}/mem', os.O_RDWR); print('ESCAPED')",
        "print('OK' if os.open('/proc/self/mem', os.O_RDONLY) else '')", control=True,
    ),
    Attack(
        "trace another", "call(117 if ARM else 101, 16, PID, 0, 0); print('ESCAPED')",
        "p = subprocess.run(['true']); print('OK' if p.returncode == 0 else '')", control=True,
    ),
    Attack(
        "copy another's memory",
        "b = ctypes.create_string_buffer(8); v = struct.pack('QQ', ctypes.addressof(b), 8)\n"
        "call(270 if ARM else 310, PID, ctypes.create_string_buffer(v), 1, ctypes.create_string_buffer(v), 1, 0)\nprint('ESCAPED')",
        WRITE_TWIN,
    ),
    Attack("take another's descriptor", "call(438, os.pidfd_open(PID), 1, 0); print('ESCAPED')", WRITE_TWIN, control=True),
    Attack(
        "change another's limits",
        "call(261 if ARM else 302, PID, 7, ctypes.create_string_buffer(struct.pack('QQ', 3, 3)), 0); print('ESCAPED')",
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print('OK')",
        lambda victim: not victim.limits_as_before(), control=True,
    ),
    Attack(
        "use a descriptor that was left open",
        "for fd in range(3, 256):\n    try: os.write(fd, b'x'); print('ESCAPED')\n    except OSError: pass",
        "print('OK' if os.fstat(0) and os.fstat(1) and os.fstat(2) else '')", changed, alone=True,
    ),
)  # fmt: skip

CHANNELS = (
    Attack(
        "an abstract socket of the host",
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + NAME); print('ESCAPED')",
        "a = socket.socket(socket.AF_UNIX); a.bind('\\0own'); a.listen(); b = socket.socket(socket.AF_UNIX)\n"
        "b.connect('\\0own'); print('OK')", control=True,
        landlock_twin="a, b = socket.socketpair(); a.send(b'x'); print('OK' if b.recv(1) else '')",
    ),
    Attack(
        "a socket in the file system (an agent, a bus, Docker)",
        "s = socket.socket(socket.AF_UNIX); s.connect(SOCKET); print('ESCAPED')",
        "a = socket.socket(socket.AF_UNIX); a.bind('/tmp/own'); a.listen(); b = socket.socket(socket.AF_UNIX)\n"
        "b.connect('/tmp/own'); print('OK')", control=True,
        landlock_twin="a, b = socket.socketpair(); a.send(b'x'); print('OK' if b.recv(1) else '')",
    ),
    Attack(
        "the sockets whose names everybody knows",
        "paths = ['/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket', f'/run/user/{os.getuid()}/bus']\n"
        "paths += [os.environ.get(n, '') for n in ('SSH_AUTH_SOCK', 'DBUS_SESSION_BUS_ADDRESS', 'DISPLAY', 'WAYLAND_DISPLAY')]\n"
        "print('ESCAPED' if any(p and os.path.exists(p) for p in paths) or any(paths[4:]) else '')",
        "print('OK' if os.path.isdir('/usr') else '')", control=True,
    ),
    Attack(
        "shared memory of the host (System V)",
        "i = call(194 if ARM else 29, KEY, 0, 0); print('ESCAPED')",
        "i = call(194 if ARM else 29, 0, 4096, 0o1600); print('OK')", control=True,
        landlock_twin="m = mmap.mmap(-1, 4096); m[0] = 1; print('OK')",
    ),
    Attack(
        "shared memory of the host (/dev/shm)", "print('ESCAPED' if TOKEN in open('/dev/shm/' + NAME).read() else '')",
        "open('/dev/shm/own','w').write('x'); print('OK')", control=True,
        landlock_twin="m = mmap.mmap(-1, 4096); m[0] = 1; print('OK')",
    ),
    Attack(
        "virtual machine sockets", "socket.socket(40, socket.SOCK_STREAM); print('ESCAPED')",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM); print('OK')", control=True,
    ),
    Attack(
        "raw packets",
        "for f, t in ((17, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW), (socket.AF_INET6, socket.SOCK_RAW)):\n"
        "    try: socket.socket(f, t, 1); print('ESCAPED')\n    except OSError: pass",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print('OK')",
    ),
    Attack(
        "reconfigure the network",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); import fcntl\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sH14x', b'lo', 0)); print('ESCAPED')",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print('OK')",
    ),
    Attack(
        "listen on a port nobody opened",
        "s = socket.socket(); s.bind(('127.0.0.1', 24713)); s.listen(); print('ESCAPED')",
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('OK')", control=True,
    ),
    Attack(
        "listen by another protocol", "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)\n"
        "s.bind(('127.0.0.1', 24714)); print('ESCAPED')", "socket.socket(); print('OK')",
    ),
    Attack(
        "no network: TCP on the host's loopback", "socket.create_connection(('127.0.0.1', PORT), 2); print('ESCAPED')",
        WRITE_TWIN, control=True, options=NONE,
    ),
    Attack(
        "no network: TCP that opens fast",
        "s = socket.socket(); s.settimeout(2); s.sendto(b'x', 0x20000000, ('127.0.0.1', PORT)); s.recv(1); print('ESCAPED')",
        WRITE_TWIN, options=NONE,
    ),
    Attack(
        "no network: UDP", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(TOKEN.encode(), ('127.0.0.1', PORT))",
        WRITE_TWIN, lambda victim: victim.got_datagram(), control=True, options=NONE,
    ),
    Attack(
        "no network: a way out", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 53)); print('ESCAPED')",
        WRITE_TWIN, options=NONE,
    ),
)  # fmt: skip

SURFACE = "try: {}\nexcept OSError as e: print(errno.errorcode[e.errno])\nelse: print('ESCAPED')"
KERNEL = tuple(
    Attack(name, SURFACE.format(source), twin, control=control)
    for name, source, twin, control in (
        ("io_uring", "call(425, 4, ctypes.create_string_buffer(120))", "import select; select.epoll(); print('OK')", True),
        ("userfaultfd", "call(282 if ARM else 323, 1)", "mmap.mmap(-1, 4096); print('OK')", True),
        ("bpf", "call(280 if ARM else 321, 0, ctypes.create_string_buffer(struct.pack('IIIII', 1, 4, 4, 1, 0), 120), 120)",
         WRITE_TWIN, False),
        ("perf_event_open", "call(241 if ARM else 298, ctypes.create_string_buffer(struct.pack('II', 1, 120), 120), 0, -1, -1, 0)",
         "time.perf_counter(); print('OK')", False),
        ("keys of the kernel", "call(217 if ARM else 248, b'user', b'x', b'x', 1, -4)", WRITE_TWIN, True),
        ("a user namespace by clone", "call(220 if ARM else 56, 0x10000011, 0, 0, 0, 0) or os._exit(0)",
         "os.waitpid(os.fork() or os._exit(0), 0); print('OK')", True),
        ("a user namespace by clone3",
         "call(435, ctypes.create_string_buffer(struct.pack('QQQQQ', 0x10000000, 0, 0, 0, 17), 88), 88) or os._exit(0)",
         "import threading; t = threading.Thread(target=int); t.start(); t.join(); print('OK')", True),
        ("a user namespace by unshare", "call(97 if ARM else 272, 0x10000000)", WRITE_TWIN, True),
        ("a mount namespace by unshare", "call(97 if ARM else 272, 0x20000)", WRITE_TWIN, False),
        ("another namespace by setns", "call(268 if ARM else 308, os.open('/proc/self/ns/net', os.O_RDONLY), 0)", WRITE_TWIN, False),
        ("mount", "call(40 if ARM else 165, b'x', b'/tmp', b'tmpfs', 0, 0)", WRITE_TWIN, False),
        ("make what is read-only writable", "call(40 if ARM else 165, b'', b'/usr', b'', 0x1020, 0)", WRITE_TWIN, False),
        ("unmount", "call(39 if ARM else 166, b'/proc/sys', 2)", WRITE_TWIN, False),
        ("move a mount", "call(429, -100, b'/usr', -100, b'/tmp', 0)", WRITE_TWIN, False),
        ("clone a mount", "call(428, -100, b'/', 1)", WRITE_TWIN, False),
        ("change a mount", "call(442, -100, b'/usr', 0, ctypes.create_string_buffer(struct.pack('QQQQ', 0, 1, 0, 0)), 32)", WRITE_TWIN, False),
        ("another root", "call(41 if ARM else 155, b'/tmp', b'/tmp')", WRITE_TWIN, False),
        ("the host's name", "socket.sethostname('evil')", "print('OK' if socket.gethostname() else '')", False),
        ("the clock", "call(112 if ARM else 227, 0, ctypes.create_string_buffer(16))", "time.time(); print('OK')", False),
        ("restart the machine", "call(142 if ARM else 169, 0xfee1dead, 672274793, 0, 0)", WRITE_TWIN, False),
        ("load a module", "call(105 if ARM else 175, ctypes.create_string_buffer(64), 64, b'')", WRITE_TWIN, False),
        ("another kernel", "call(104 if ARM else 246, 0, 0, 0, 0)", WRITE_TWIN, False),
        ("swap", "call(224 if ARM else 167, b'/tmp', 0)", WRITE_TWIN, False),
        ("the other table of system calls (x32)", "ARM and sys.exit(1) or call(0x40000000 + 39)", WRITE_TWIN, False),
        ("a lease, for which programs of the host wait",
         "import fcntl; fcntl.fcntl(os.open('leased', os.O_CREAT | os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
         "import fcntl; fcntl.flock(os.open('leased', os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX); print('OK')", True),
        ("type ahead (TIOCSTI)", "import fcntl, pty; fcntl.ioctl(0, 0x5412, b'x')", WRITE_TWIN, False),
        ("type ahead, with bits that nobody reads", "call(29 if ARM else 16, 0, 0x7700005412, b'x')", WRITE_TWIN, False),
    )
)  # fmt: skip

ATTACKS = (*FILES, *PROCESSES, *CHANNELS, *KERNEL)
