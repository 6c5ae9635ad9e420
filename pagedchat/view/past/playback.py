"""Plays a recording at the speed at which it was made, as a clock moves on. Knows time travel, no timers."""

from pagedchat.view.past.time_travel import TimeTravel

MAX_GAP = 1.0
"""Seconds; the engine's longer pauses are shortened to this."""


class Playback:
    """Where playing has got to. Time between two reports passes as it did, but for long pauses."""

    def __init__(self, travel: TimeTravel) -> None:
        self._travel = travel
        self.playing = False
        self._waited = 0.0
        """Seconds since the report that is shown, as far as they have passed in the playback."""

    def toggle(self) -> None:
        """Play from here, or stop; at the end it begins anew."""
        self.playing = not self.playing
        self._waited = 0.0
        if self.playing and self._travel.position == self._travel.last:
            self._travel.goto(self._travel.first)

    def stop(self) -> None:
        """The user went somewhere else."""
        self.playing = False

    def advance(self, seconds: float) -> bool:
        """So much time has passed; whether another step is shown now.

        Raises:
            TraceError: the recording is damaged there; playing has stopped.
        """
        if not self.playing:
            return False
        target = self._due(seconds)
        if target == self._travel.position:
            return False
        self.playing = False
        self._travel.goto(target)
        self.playing = target < self._travel.last
        return True

    def _due(self, seconds: float) -> int:
        """The step to be shown when so much time has passed."""
        travel, recording = self._travel, self._travel.recording
        self._waited += seconds
        at = recording.position_of(travel.position or 0)
        time = recording.report(at).time if at > recording.first else None
        while at < recording.end:
            following = recording.report(at + 1).time
            gap = 0.0 if time is None else min(MAX_GAP, max(0.0, following - time))
            if gap > self._waited:
                break
            self._waited -= gap
            at, time = at + 1, following
        return recording.step_at(at)
