"""Free ports of this machine, and tickets that name another place."""
import base64
import hashlib
import socket


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def elsewhere(ticket, here, there):
    """The ticket with another host in it: ports of five digits, so nothing moves but the checksum."""
    body = bytearray(base64.urlsafe_b64decode(ticket[6:] + "=" * (-len(ticket[6:]) % 4)))
    at = body.index(here.encode())
    body[at:at + len(here)] = there.encode()
    body[-4:] = hashlib.blake2b(bytes(body[:-4]), digest_size=32, key=b"atom ticket checksum").digest()[:4]
    return "atom1-" + base64.urlsafe_b64encode(body).decode().rstrip("=")
