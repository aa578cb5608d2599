"""Sources as directories: what a command is given, which may be a bundle, a packed log, a pipe or a URL, as plain paths.

| given | becomes |
|---|---|
| a bundle, or a volume of one | a folder with its runs |
| a log or folder in a bundle (`runs.tar.zst:run-x`) | that, in such a folder |
| a log packed with gzip or zstd | a folder with that log |
| `-`, a named pipe | what it holds: a bundle, or a log, packed or not |
| a URL (`scheme://..`) | a copy of what lies there, and of that what stands above |
| anything else | itself |

The folders are private and removed in the end. `lasting` keeps them for who leaves side files beside logs, as a sync does: one
for each content, in which only those files stay when nobody uses it any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..logformat import head_of, log_name, run_id_of, valid_run_id
from ..logformat.rundir import LOG_SUFFIX
from ..logformat.sources import GZIP, ZSTD, first_look, open_log
from .disk import sha256_of
from .errors import BundleError
from .names import PART_PREFIX, is_side_file
from .reading import Bundle, find_volumes, is_bundle
from .remote import fetch, is_remote, shown
from .unpacking import RATIO, SMALL, unpack
from .volumes import SUMS

PIPE = "-"
_STDIN = "standard input"
_PIECE = 1 << 20
_LOCK = ".lock"


@dataclass
class Opened:
    """Sources that are open."""

    paths: list[Path] = field(default_factory=list)
    """In the order in which they were named."""
    problems: list[str] = field(default_factory=list)
    """What is wrong with bundles and packed logs among them; all that can be read is in `paths` all the same."""
    sources: dict[Path, str] = field(default_factory=dict)
    """Folder or file that was made for a source -> the source, as it was named. Empty if there are only plain paths."""

    def shown(self, path: str | os.PathLike[str]) -> str:
        """How a path is called by the user: `runs.tar.zst:run-x/run-x.wandb`; a plain one as it is."""
        place = Path(path)
        for made in (place, *place.parents):
            if (source := self.sources.get(made)) is not None:
                return source if made == place else f"{source}:{place.relative_to(made).as_posix()}"
        return os.fspath(path)

    def in_words(self, text: str) -> str:
        """A text in which paths are called as `shown` does it: a problem that a reader of plain paths told."""
        for made, source in self.sources.items():
            text = text.replace(f"{made}{os.sep}", f"{source}:").replace(str(made), source)
        return text


@contextlib.contextmanager
def opened(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    lasting: Path | None = None,
    max_size: int | None = None,
    stdin: BinaryIO | None = None,
) -> Iterator[Opened]:
    """Plain paths for `sources`, as long as the context lasts.

    Args:
        sources: paths, `-`, or URLs.
        lasting: where folders are kept, by their content, for side files; None: nothing is kept.
        max_size: bytes that one source may grow to, as `unpack` has it.
        stdin: what `-` means.

    Raises:
        BundleError: not one of them can be read. Else those that are refused, or cannot be read at all, are `problems`.
        OSError: there is no room for what is unpacked.
    """
    with ExitStack() as stack:
        opener = _Opener(stack, lasting, max_size, stdin)
        refused: list[str] = []
        for source in [sources] if isinstance(sources, (str, os.PathLike)) else sources:
            try:
                opener.found.paths.append(opener.path_of(source))
            except BundleError as error:  # half a bundle among many stops no other
                name = os.fspath(source)
                refused.append(
                    _named(_STDIN if name == PIPE else shown(name) if is_remote(source) else name, str(error))
                )
        if refused and not opener.found.paths:
            raise BundleError("; ".join(refused))
        opener.found.problems += refused
        yield opener.found


@contextlib.contextmanager
def readable_bundle(source: str | os.PathLike[str], *, stdin: BinaryIO | None = None) -> Iterator[Bundle]:
    """The bundle at a path (as `find_volumes` takes it), at a URL, or on standard input (`-`).

    Raises:
        BundleError: it is none, or refused.
        OSError: it cannot be read.
    """
    with ExitStack() as stack:
        path, _ = _Opener(stack, None, None, stdin).local(source)
        yield stack.enter_context(Bundle.open(path))


class _Opener:
    """Opens sources; `stack` lets go of what was made for them."""

    def __init__(self, stack: ExitStack, lasting: Path | None, max_size: int | None, stdin: BinaryIO | None) -> None:
        self.found = Opened()
        self._stack, self._lasting, self._max_size, self._stdin = stack, lasting, max_size, stdin

    def path_of(self, source: str | os.PathLike[str]) -> Path:
        """The plain path of one source."""
        path, name = self.local(source)
        if is_remote(source) and path.is_dir():
            self.found.sources[path] = name
            return path
        if _holds_bundle(path):
            return self._bundle(path, name)
        if not is_remote(source) and (inner := self._in_bundle(name)) is not None:
            return inner
        head = _head(path)
        if head.startswith((GZIP, ZSTD)):
            return self._packed_log(path, name)
        if path == Path(source):
            return path
        if problem := first_look(head):
            raise BundleError(f"{name}: {problem}")
        log = path.replace(path.with_name(_log_name(path, path.name)))
        self.found.sources[log] = name
        return log

    def local(self, source: str | os.PathLike[str]) -> tuple[Path, str]:
        """Where a source can be read on this machine, and how it is called."""
        name = os.fspath(source)
        if is_remote(source):
            return fetch(name, self._scratch()), shown(name)
        if name == PIPE:
            return self._spool(self._stdin or sys.stdin.buffer, _STDIN), _STDIN
        if Path(source).is_fifo():  # `<(zstdcat old.zst)` of a shell
            with Path(source).open("rb") as pipe:
                return self._spool(pipe, name), name
        return Path(source), name

    def _scratch(self) -> Path:
        """A private folder, removed in the end."""
        folder = Path(tempfile.mkdtemp(prefix="runferry-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _place(self, key: str) -> _Place:
        """A folder for what has this key."""
        if self._lasting is None:
            return _Place(self._scratch())
        try:
            return self._stack.enter_context(_kept(self._lasting / key))
        except OSError:  # nobody may write there: it costs no more than that nothing is remembered
            return _Place(self._scratch())

    def _spool(self, stream: BinaryIO, name: str) -> Path:
        """Copy a pipe: bundles are read forward and back, logs more than once."""
        path = self._scratch() / Path(name).name
        with path.open("xb") as file:
            while data := stream.read(_PIECE):
                file.write(data)
                if self._max_size is not None and file.tell() > self._max_size:
                    raise BundleError(f"{name}: refused: it is larger than --max-size")
        return path

    def _bundle(self, path: Path, name: str) -> Path:
        """A folder with what is in a bundle."""
        with Bundle.open(path) as bundle:
            place = self._place(bundle.key)
            done = unpack(bundle, place.folder, overwrite=True, max_size=self._max_size)
            place.settle()
        self.found.sources[place.folder] = name
        self.found.problems += [_named(name, problem) for problem in done.problems]
        self.found.problems += [f"{name}: {file.name}: {file.reason}" for file in done.bad]
        return place.folder

    def _in_bundle(self, name: str) -> Path | None:
        """The log or folder that `BUNDLE:PLACE` names, unless there is such a file; None: it names no bundle.

        Raises:
            BundleError: the bundle has no such place, or is refused.
        """
        source, _, place = name.rpartition(":")
        if not source or not place or os.path.lexists(name) or not _holds_bundle(Path(source)):
            return None
        folder = self._bundle(Path(source), source)
        wanted = PurePosixPath(place)
        if wanted.is_absolute() or ".." in wanted.parts or not (folder / wanted).exists():
            raise BundleError(f"{name}: nothing of that name in the bundle: see `runferry unpack {source} --list`")
        return folder / wanted

    def _packed_log(self, path: Path, name: str) -> Path:
        """A folder with the one log that was packed; the log."""
        place = self._place(sha256_of(path) if self._lasting is not None else "")
        number, made = tempfile.mkstemp(prefix=PART_PREFIX, dir=place.folder)
        part = Path(made)
        self._stack.callback(part.unlink, missing_ok=True)
        with os.fdopen(number, "wb") as out, open_log(path) as stream:
            self._copy(stream, out, name, path.stat().st_size)
            if trouble := getattr(stream, "trouble", ""):
                self.found.problems.append(f"{name}: {trouble}")
        status = path.stat()
        os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))  # by it a silent log is known
        stem = path.name
        for suffix in (".gz", ".zst", ".zstd"):
            stem = stem.removesuffix(suffix)
        log = place.folder / _log_name(part, stem)
        if not log.exists() or sha256_of(log) != sha256_of(part):
            part.replace(log)
        place.settle()
        self.found.sources[log] = name
        return log

    def _copy(self, stream: BinaryIO, out: BinaryIO, name: str, packed: int) -> None:
        """Copy a log that is unpacked as it comes, up to a limit.

        Raises:
            BundleError: it is none, or larger.
        """
        limit = self._max_size if self._max_size is not None else max(SMALL, RATIO * packed)
        while data := stream.read(_PIECE):
            if not out.tell() and (problem := first_look(data[:512])):
                raise BundleError(f"{name}: {problem}")
            if out.tell() + len(data) > limit:
                raise BundleError(
                    f"{name}: refused: unpacked it takes more than {limit} bytes; if you expect that, unpack it yourself"
                )
            out.write(data)


def _named(source: str, problem: str) -> str:
    """A problem with the source that has it in front, once: those of bundles begin with the name of a file."""
    own = source.replace("\\", "/").rpartition("/")[2]
    return f"{source}: {problem.removeprefix(f'{source}: ').removeprefix(f'{own}: ')}"


def _holds_bundle(path: Path) -> bool:
    return is_bundle(path) or ((path.name.endswith(SUMS) or not path.exists()) and _has_volumes(path))


def _has_volumes(path: Path) -> bool:
    try:
        return bool(find_volumes(path).paths)
    except BundleError:
        return False


def _head(path: Path) -> bytes:
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(512)
    except OSError:
        pass  # the command itself says what is wrong with it
    return b""


def _log_name(log: Path, name: str) -> str:
    """What a log is to be called: as it was, if that is a log's name, or by its run: commands take the run id from it."""
    if run_id_of(Path(name)):
        return name
    run = head_of(log).run
    if run is not None and valid_run_id(run[2]):
        return log_name(run[2])
    return name if name.endswith(LOG_SUFFIX) else name + LOG_SUFFIX


# -- folders that last -----------------------------------------------------------------------------------------------


@dataclass
class _Place:
    """A folder, and the lock that it is held by if it lasts."""

    folder: Path
    lock: BinaryIO | None = None

    def settle(self) -> None:
        """All is unpacked: others may use the folder, too."""
        if self.lock is not None:
            _locked(self.lock, alone=False, waits=True)


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[_Place]:
    """A folder that lasts; what was unpacked there goes when nobody uses it any more, and the folder if nothing else is in it.

    Who comes first has it alone until `settle`; who comes then waits for that, and finds everything there.
    """
    with _lock_of(folder) as lock:
        place = _Place(folder, lock=lock)
        try:
            yield place
        finally:
            if _locked(lock, alone=True, waits=False):
                _sweep(folder)


def _lock_of(folder: Path) -> BinaryIO:
    """The lock of a folder, which is made for it, held."""
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # it was swept at this moment
            lock = (folder / _LOCK).open("ab")
            if not _locked(lock, alone=True, waits=False):
                _locked(lock, alone=False, waits=True)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), (folder / _LOCK).stat()):
                    return lock
            lock.close()


def _locked(lock: BinaryIO, *, alone: bool, waits: bool) -> bool:
    """Take the lock, or change how it is held. Where there are none (Windows, odd file systems), nothing is swept."""
    try:
        import fcntl

        fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if waits else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


def _sweep(folder: Path) -> None:
    """Leave only what speaks of a sync: cursors and markers beside logs."""
    for above, _, names in os.walk(folder, topdown=False):
        here = Path(above)
        for name in names:
            if not (is_side_file((here / name).relative_to(folder).as_posix()) or (here == folder and name == _LOCK)):
                with contextlib.suppress(OSError):
                    (here / name).unlink()
        if here != folder:
            with contextlib.suppress(OSError):
                here.rmdir()
    with contextlib.suppress(OSError):
        if os.listdir(folder) == [_LOCK]:  # noqa: PTH208 - names are all that is needed
            (folder / _LOCK).unlink()
            folder.rmdir()
