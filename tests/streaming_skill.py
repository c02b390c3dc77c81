"""A skill that streams without end, for tests of calls that are under way."""

META = """\
name: {name}
sidecar:
  command: [python3, -S, -E, sidecar.py]
  mount: {name}
  health: {{path: /status, interval_ms: 20}}
"""
PROGRAM = """\
import os, signal, socket, threading, time
if os.path.exists("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), backlog=512)
def serve(connection):
    path = connection.recv(65536).split(b" ")[1]
    try:
        if path == b"/silent":
            time.sleep(600)
        if path == b"/joined":
            connection.sendall(b"HTTP/1.1 101 Ticks\\r\\nConnection: Upgrade\\r\\nUpgrade: ticks\\r\\n\\r\\n")
        elif path not in (b"/stream", b"/flood"):
            return connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
        else:
            connection.sendall(
                b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nConnection: close\\r\\n\\r\\n"
            )
        while True:
            connection.sendall(b"data: tick\\n\\n" * (100_000 if path == b"/flood" else 1))
            time.sleep(0.05)
    except OSError:
        pass
    finally:
        connection.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
