# SPDX-License-Identifier: Apache-2.0
"""What the library reports, as exceptions: one class for each remedy."""


class Error(Exception):
    """Any failure of the library.

    code: the number of rsd_err; name: its name, "RSD_E_CORRUPT"; rank: the first rank that failed, -1 outside of
    collectives; errno: of the system call that failed, 0 if none did. Pickles, so that it can be sent to other ranks."""

    code = 30
    name = "RSD_E_BUG"
    rank = -1

    def __init__(self, message="", rank=-1, errno=0):
        super().__init__(message)
        self.rank = rank
        self.errno = errno

    def __reduce__(self):
        return type(self), (self.args[0] if self.args else "", self.rank, self.errno)


class InvalidError(Error, ValueError):
    """An argument is invalid."""

    code, name = 1, "RSD_E_INVALID"


class MismatchError(Error, ValueError):
    """Two arguments, or an argument and the checkpoint, don't belong together."""

    code, name = 2, "RSD_E_MISMATCH"


class UnsupportedError(Error):
    """The call makes sense, but not here."""

    code, name = 3, "RSD_E_UNSUPPORTED"


class NotFoundError(Error, FileNotFoundError):
    """The file, checkpoint or tensor is missing."""

    code, name = 10, "RSD_E_NOTFOUND"


class MissingKeyError(NotFoundError, KeyError):
    """The checkpoint lacks a tensor or value that was to be loaded."""


class ExistsError(Error, FileExistsError):
    """It exists already."""

    code, name = 11, "RSD_E_EXISTS"


class FormatError(Error):
    """The data break the rules of their format."""

    code, name = 12, "RSD_E_FORMAT"


class CorruptError(Error):
    """A checksum is wrong."""

    code, name = 13, "RSD_E_CORRUPT"


class NoMemoryError(Error, MemoryError):
    """No memory is left."""

    code, name = 20, "RSD_E_NOMEM"


class SystemIOError(Error, OSError):
    """The system could not read or write."""

    code, name = 21, "RSD_E_IO"


class CommError(Error):
    """Ranks could not talk to each other."""

    code, name = 22, "RSD_E_COMM"


class CanceledError(Error):
    """The operation was canceled."""

    code, name = 23, "RSD_E_CANCELED"


class RankTimeoutError(Error, TimeoutError):
    """A rank was silent for too long."""

    code, name = 24, "RSD_E_TIMEOUT"


_by_code = {kind.code: kind for kind in Error.__subclasses__()}


def make(code, message, rank=-1, errno=0):
    """The exception of an rsd_error."""
    return _by_code.get(code, Error)(message, rank, errno)
