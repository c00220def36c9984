"""Progress as plain lines, a bar and the time left in each: readable in a terminal and in a log file alike."""

import time

BAR = 20  # characters


class Progress:
    """Prints at most one line every `interval` seconds, and one when finished."""

    def __init__(self, what: str, total: float, interval: float = 2.0, begun: float = 0.0):
        self.what = what
        self.total = total
        self.interval = interval
        self.begun = begun  # done before this process started: not counted into the speed
        self.started = time.monotonic()
        self.printed = self.started

    def show(self, done: float, details: str = "") -> None:
        now = time.monotonic()
        if now - self.printed < self.interval and done < self.total:
            return
        self.printed = now
        elapsed = now - self.started
        speed = (done - self.begun) / elapsed if elapsed > 0 else 0.0
        left = clock((self.total - done) / speed) if speed > 0 else "?"
        share = min(done / self.total, 1.0) if self.total else 1.0
        line = f"{self.what}: [{bar(share)}] {100 * share:3.0f} %  {clock(elapsed)} gone, {left} left  {details}"
        print(line.rstrip(), flush=True)


def bar(share: float) -> str:
    return ("#" * int(share * BAR)).ljust(BAR, ".")


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
