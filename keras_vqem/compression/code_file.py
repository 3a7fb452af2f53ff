"""CodeFile: the bytes of a file of codes, and what makes sure that they are intact.

| Bytes | |
| --- | --- |
| 4 | `VQEM` |
| 1 | number of the format |
| 1 | 1 if the codes are coded under the prior, 0 if not |
| 8 | fingerprint of the model |
| 4, 4 | height and width of the image in pixels |
| 1, n | name of the model, UTF-8, after its length |
| 4, 4, n | for each batch of tiles the length of its codes, their CRC-32, the codes |
| 8 | SHA-256 of all bytes before, the first 8 |

Numbers have their lowest byte first. The CRC-32 is that of the decoded codes, as int32.
The number of tiles per batch belongs to the format.
"""

import dataclasses
import hashlib
import struct

MAGIC, FORMAT = b"VQEM", 1
TILES_PER_BATCH = 64
_HEAD = struct.Struct("<4sBB8sIIB")
_BATCH = struct.Struct("<II")
_DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class CodeFile:
    """The content of a file of codes.

    Attributes:
        model: Name of the model. It is at most 255 bytes long.
        fingerprint: Fingerprint of the model, 16 hexadecimal digits.
        prior: Whether the codes are coded under the model's prior.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        batches: Tuple of pairs `(checksum, data)`, one per batch of tiles: the CRC-32
            of the codes and the codes themselves.
    """

    model: str
    fingerprint: str
    prior: bool
    height: int
    width: int
    batches: tuple[tuple[int, bytes], ...]

    def to_bytes(self) -> bytes:
        """Returns the bytes of the file."""
        name = self.model.encode()[:255].decode(errors="ignore").encode()
        mark = bytes.fromhex(self.fingerprint)
        sizes = (self.height, self.width, len(name))
        parts = [_HEAD.pack(MAGIC, FORMAT, self.prior, mark, *sizes), name]
        for checksum, data in self.batches:
            parts += [_BATCH.pack(len(data), checksum), data]
        content = b"".join(parts)
        return content + _digest(content)

    @classmethod
    def from_bytes(cls, content: bytes) -> "CodeFile":
        """Reads the bytes of a file.

        Args:
            content: All bytes of the file.

        Returns:
            The `CodeFile`.

        Raises:
            ValueError: If it is another kind of file, damaged, or of another format.
        """
        if content[: len(MAGIC)] != MAGIC:
            raise ValueError(
                "This is no file of codes: it does not begin as one. Pass a file that "
                "`keras-vqem compress` wrote."
            )
        if len(content) > len(MAGIC) and content[len(MAGIC)] != FORMAT:
            raise ValueError(
                f"The file has format {content[len(MAGIC)]}, and this version of "
                f"keras_vqem reads format {FORMAT}. Update keras_vqem, or copy the "
                f"file again if it may be damaged."
            )
        body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        if _digest(body) != digest:
            raise ValueError(
                f"The file is damaged or incomplete: its {len(content):,} bytes do not "
                f"have the checksum at their end. Copy it again from where it was "
                f"written."
            )
        try:
            _, _, prior, mark, *sizes, length = _HEAD.unpack_from(body)
            place = _HEAD.size + length
            name, batches = body[_HEAD.size : place].decode(), []
            while place < len(body):
                size, checksum = _BATCH.unpack_from(body, place)
                place += _BATCH.size + size
                batches.append((checksum, body[place - size : place]))
            intact = place == len(body) and prior in (0, 1) and min(sizes) > 0
        except (struct.error, UnicodeDecodeError):
            intact = False
        if not intact:
            raise ValueError(
                "The file has the right checksum, but not the parts of a file of "
                "codes: what wrote it was no `keras-vqem compress`."
            )
        return cls(name, mark.hex(), bool(prior), *sizes, tuple(batches))


def _digest(content):
    return hashlib.sha256(content).digest()[:_DIGEST_BYTES]
