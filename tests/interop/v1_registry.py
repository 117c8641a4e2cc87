"""The registry of a group as a version-1 process keeps it: no side directory, no owner's mark,
locks that block, and a scan that one foreign file makes fail.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import re
import secrets
import stat

import v1_abi as abi

RENAME_NOREPLACE = 1
MOST_ENTRIES = 8
PUBLISHED = re.compile(r"peer\.(\d+)\.(\d+)\.(\d+)\.reg")
TEMPORARY = re.compile(r"tmp\.(\d+)\.(\d+)\.(\d+)")

_libc = ctypes.CDLL(None, use_errno=True)


class ScanError(Exception):
    """What a version-1 process cannot live with in its registry directory."""


def _rename_no_replace(folder, old, new):
    if _libc.renameat2(folder, old.encode(), folder, new.encode(), RENAME_NOREPLACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


@contextlib.contextmanager
def locked(fd):
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def check_header(header, name, uid):
    """Raises ScanError unless a version-1 reader accepts the header."""
    def demand(what, true):
        if not true:
            raise ScanError(f"{name}: {what}: {header}")
    demand("magic", header.magic == abi.MAGIC)
    demand("version", header.abi_version == abi.VERSION)
    demand("sizes", (header.header_bytes, header.mapping_bytes)
           == (abi.HEADER_BYTES, abi.BLOCK_BYTES))
    demand("rail", 1 <= header.rail_bytes <= abi.MAX_RAIL
           and not any(header.rail[header.rail_bytes:]))
    demand("owner", header.uid == uid and header.pid > 0 and header.start_ticks > 0)
    demand("epoch", header.epoch != 0)
    demand("geometry", (header.lane_count, header.slots_per_lane, header.slot_size,
                        header.arena_size, header.ipc_handle_bytes)
           == (abi.LANES, abi.SLOTS, abi.SLOT_BYTES, abi.ARENA_BYTES, 64))
    demand("reserved", header.reserved == 0)
    demand("padding", not any(header.padding))


class Arena:
    """Staging memory of this process, all of it sparse until it is written."""

    def __init__(self):
        self.fd = os.memfd_create("v1-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, abi.ARENA_BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.bytes = mmap.mmap(self.fd, abi.ARENA_BYTES)

    def handle(self, owner):
        found = os.fstat(self.fd)
        return abi.HANDLE.pack(abi.HOST_MARK, owner.pid, self.fd, owner.start_ticks, found.st_dev,
                               found.st_ino, abi.ARENA_BYTES, bytes(16))


def open_arena(handle_bytes):
    """The arena of another process, mapped."""
    handle = abi.Handle(*abi.HANDLE.unpack(handle_bytes))
    fd = os.open(f"/proc/{handle.pid}/fd/{handle.fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if (handle.mark != abi.HOST_MARK or any(handle.padding)
                or (found.st_dev, found.st_ino, found.st_size)
                != (handle.st_dev, handle.st_ino, handle.size)):
            raise ScanError(f"the handle {handle} does not name an arena")
        return mmap.mmap(fd, handle.size)
    finally:
        os.close(fd)


class Peer:
    """Another process's entry, mapped, with its arena."""

    def __init__(self, folder, name):
        self.fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        self.block = abi.Block(mmap.mmap(self.fd, abi.BLOCK_BYTES))
        header = self.block.header()
        self.epoch = header.epoch
        self.owner = abi.Identity(header.uid, header.pid, header.start_ticks)
        self.arena = open_arena(header.arena_handle)

    def claim(self, me, my_epoch):
        """The number of a lane that is this process's now, and its first sequence."""
        if self.owner == me:
            raise ScanError("a process never claims its own lane")
        with locked(self.fd):
            for lane in range(abi.LANES):
                header = self.block.lane_header(lane)
                if header.state == abi.LANE_READY and self.block.holder(lane) == (me, my_epoch):
                    return lane, header.head + 1
            for lane in range(abi.LANES):
                if self._may_take(lane, me, my_epoch):
                    self._take(lane, me, my_epoch)
                    return lane, 1
        raise ScanError("no lane is free")

    def _may_take(self, lane, me, my_epoch):
        header = self.block.lane_header(lane)
        if header.state != abi.LANE_READY:
            return True
        holder, epoch = self.block.holder(lane)
        if holder == me:
            return epoch != my_epoch and not header.arena_attached
        return not abi.is_alive(holder)

    def _take(self, lane, me, my_epoch):
        at = abi.lane_at(lane)
        block = self.block
        block.clear_lane(lane)
        block.put_u32(at + abi.LANE_STATE, abi.LANE_CLAIMING)
        block.put_u32(at + abi.LANE_UID, me.uid)
        block.put_u32(at + abi.LANE_PID, me.pid)
        block.put_u64(at + abi.LANE_TICKS, me.start_ticks)
        block.put_u64(at + abi.LANE_EPOCH, my_epoch)
        block.put_u32(at + abi.LANE_STATE, abi.LANE_READY)
        block.put_u32(at + abi.LANE_ATTACHED, 1)

    def release(self, lane):
        """Detach and release."""
        with locked(self.fd):
            self.block.put_u32(abi.lane_at(lane) + abi.LANE_ATTACHED, 0)
            self.block.clear_lane(lane)


class Registry:
    """The group's directory, and this process's entry in it."""

    def __init__(self, root, group):
        path = f"{root}/mooncake-pxn-{os.geteuid()}-{group}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.folder = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self.folder)
        if stat.S_IMODE(found.st_mode) != 0o700 or found.st_uid != os.geteuid():
            raise ScanError(f"{path} is not this user's alone")
        self.lock = os.open(".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600,
                            dir_fd=self.folder)
        self._check_file(".lock", None)
        self.owner = abi.own_identity()
        self.epoch = secrets.randbits(64) or 1
        self.arena = Arena()
        self.block = None
        self.fd = -1
        self.name = f"peer.{self._key()}.reg"

    def _key(self):
        return f"{self.owner.pid}.{self.owner.start_ticks}.{self.epoch}"

    def publish(self, rail):
        temporary = f"tmp.{self._key()}"
        self.fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                          | os.O_NOFOLLOW, 0o600, dir_fd=self.folder)
        os.posix_fallocate(self.fd, 0, abi.BLOCK_BYTES)
        self.block = abi.Block(mmap.mmap(self.fd, abi.BLOCK_BYTES))
        name = rail.encode()
        abi.HEADER.pack_into(
            self.block.bytes, 0, abi.MAGIC, abi.VERSION, abi.HEADER_BYTES, abi.BLOCK_BYTES,
            abi.INITIALIZING, len(name), *self.owner, self.epoch, 0, abi.LANES, abi.SLOTS,
            abi.SLOT_BYTES, abi.ARENA_BYTES, 64, 0, name, self.arena.handle(self.owner), bytes(32))
        with locked(self.lock):
            entries = self._scan()
            if len(entries) >= MOST_ENTRIES:
                raise ScanError("the group is full")
            if any((entry.pid, entry.start_ticks) == self.owner[1:] for entry in entries.values()):
                raise ScanError("this process has an entry already")
            self.block.put_u32(abi.STATE_AT, abi.READY)
            _rename_no_replace(self.folder, temporary, self.name)

    def unpublish(self):
        with locked(self.lock), locked(self.fd):
            self.block.put_u32(abi.STATE_AT, abi.STOPPING)
            if (os.stat(self.name, dir_fd=self.folder, follow_symlinks=False).st_ino
                    == os.fstat(self.fd).st_ino):
                os.unlink(self.name, dir_fd=self.folder)

    def scan(self):
        """Name -> header of the live entries. Raises ScanError for anything else in there."""
        with locked(self.lock):
            return self._scan()

    def map(self, rail):
        """The first live peer on `rail`, mapped; None if there is none."""
        with locked(self.lock):
            for name, header in sorted(self._scan().items()):
                if header.rail[:header.rail_bytes] == rail.encode() and name != self.name:
                    return Peer(self.folder, name)
        return None

    def _scan(self):
        entries = {}
        for name in os.listdir(self.folder):
            published = PUBLISHED.fullmatch(name)
            parsed = published or TEMPORARY.fullmatch(name)
            if name == ".lock":
                continue
            if not parsed:
                raise ScanError(f"{name} does not belong into the directory")
            pid, ticks, epoch = map(int, parsed.groups())
            if not abi.is_alive(abi.Identity(os.geteuid(), pid, ticks)):
                os.unlink(name, dir_fd=self.folder)
                continue
            if published:
                header = self._read(name)
                if (header.pid, header.start_ticks, header.epoch) != (pid, ticks, epoch):
                    raise ScanError(f"{name} holds the header of another: {header}")
                if header.state == abi.READY:
                    entries[name] = header
        return entries

    def _read(self, name):
        self._check_file(name, abi.BLOCK_BYTES)
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.folder)
        try:
            header = abi.Header(*abi.HEADER.unpack(os.pread(fd, abi.HEADER_BYTES, 0)))
        finally:
            os.close(fd)
        check_header(header, name, os.geteuid())
        return header

    def _check_file(self, name, size):
        found = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        if (not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != 0o600
                or found.st_nlink != 1 or size not in (None, found.st_size)):
            raise ScanError(f"{name} is not a private file of its size: {found}")
