"""ZIP files whose records are wrong, for the readers of archives."""

import struct


def shifted(archive: bytes, offset: int) -> bytes:
    """An archive whose directory begins at `offset`, as ZIP64 says it: readers count the members from there."""
    end = archive.rindex(b"PK\x05\x06")
    members, size = struct.unpack_from("<HL", archive, end + 10)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, members, members, size, offset)
    return archive[:end] + record + struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1) + archive[end:]
