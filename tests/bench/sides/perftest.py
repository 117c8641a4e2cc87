"""A side whose both ends are ib_write_bw, of the Debian package perftest.

Usage: perftest.py KIND

PERFTEST_DEVICES of the environment: the device that writes and the one that is written to, "rxe0,rxe1".
Says "NAME ADDRESS" once it is up, to be passed back. Then, for each line
  write NAME ADDRESS DEPTH LENGTH THREADS MILLISECONDS
it has ib_write_bw write LENGTH bytes at a time for about so long, with DEPTH of them under way for each of
THREADS threads, over one queue pair, as the engine does from however many threads, and answers as side.py does:
"GB_PER_S 0 0 CPU_SECONDS_PER_GB GB". The CPU time is that of both processes beyond what a run of a few messages
takes: their start is not in it. It cannot check bytes.
"""

import os
import re
import subprocess
import sys

FIRST_PORT = 18515
GID_INDEX = "1"  # the IPv4 one of a device of the virtual machine
LEAST_COUNT = 5  # that it takes
LISTENING = "0A"


def is_listening(port):
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file]
    return any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows[1:])


def end_of(process):
    """CPU seconds of a process that has nothing more to do."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(process.args)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


class Perftest:
    def __init__(self, devices):
        self.near, self.far = devices.split(",")
        self.port = FIRST_PORT
        self.rate = 10e6  # bytes a second, as of the last run
        self.start_cpu = None  # seconds

    def start(self, device, arguments):
        command = ["ib_write_bw", "-d", device, "-p", str(self.port), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)

    def run(self, depth, length, count):
        """Bytes a second, and CPU seconds."""
        self.port += 1  # the last one is not free for a while
        arguments = ["-F", "-x", GID_INDEX, "-s", str(length), "-n", str(count), "-t", str(depth)]
        server = self.start(self.far, arguments)
        while not is_listening(self.port):
            if server.poll() is not None:
                sys.exit(f"{' '.join(server.args)} has ended: {server.stdout.read()}")
        client = self.start(self.near, [*arguments, "127.0.0.1"])
        said = client.stdout.read()
        server.stdout.read()
        cpu = end_of(client) + end_of(server)
        # "#bytes #iterations BW peak[MB/sec] BW average[MB/sec] ...": its MB are MiB.
        row = re.search(rf"^ *{length} +\d+ +[\d.]+ +([\d.]+)", said, re.MULTILINE)
        if row is None:
            sys.exit(f"{' '.join(client.args)} says no bandwidth: {said}")
        return float(row[1]) * (1 << 20), cpu

    def write(self, depth, length, threads, milliseconds):
        if self.start_cpu is None:
            _, self.start_cpu = self.run(depth, 64, LEAST_COUNT)
        wanted = self.rate * milliseconds / 1e3 / length
        count = max(LEAST_COUNT, round(wanted))
        self.rate, cpu = self.run(depth * threads, length, count)
        gigabytes = count * length / 1e9
        return self.rate / 1e9, 0, 0, max(0, cpu - self.start_cpu) / gigabytes, gigabytes


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = Perftest(os.environ["PERFTEST_DEVICES"])
    print("ib_write_bw", 0, file=answers, flush=True)
    for line in sys.stdin:
        _, _, _, *numbers = line.split()
        print(*(f"{number:.6g}" for number in side.write(*map(int, numbers))), file=answers, flush=True)


if __name__ == "__main__":
    main()
