"""What the syncs of one process share: connections to the server, time, and the lanes that say how fast it may be asked."""

from __future__ import annotations

import random
import threading

from .clock import Clock, SystemClock
from .counters import Counted, Counters
from .liveness import Liveness
from .network import Network, find_network
from .pacer import Pacers
from .readings import Readings
from .transport import HttpTransport, Transport


class Session:
    """One sync uses it, or many, one after another. `abort` ends what is under way, and the session with it."""

    def __init__(
        self,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        counters: Counters | None = None,
        *,
        network: Network | None = None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            transport: how requests are sent; the network unless given.
            clock: the time; the machine's unless given.
            rng: the source of jitter.
            counters: what is counted of the requests; its own unless given.
            network: how servers are reached; as the environment says unless given.

        Raises:
            UsageError: the environment says it in a way that cannot be followed.
        """
        self.network = network if network is not None else find_network()
        self._stop = threading.Event()
        self.counters = counters or Counters()
        self._transport = Counted(transport, self.counters) if transport is not None else None
        self._http: HttpTransport | None = None
        self.clock = clock or SystemClock(self._stop)
        self.rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self.liveness = Liveness(self.clock)
        self.readings: Readings | None = None
        """What the passes of a watch leave for each other."""
        self.pacers = Pacers(self.clock, self.rng)

    @property
    def transport(self) -> Transport:
        """Made on first use: a sync that has nothing to send loads no HTTP library."""
        if self._transport is None:
            self._http = HttpTransport(network=self.network, stop=self._stop)
            self._transport = Counted(self._http, self.counters)
        return self._transport

    def abort(self) -> None:
        """End every wait and every request at once."""
        self._stop.set()
        if self._http is not None:
            self._http.abort()

    def close(self) -> None:
        """Close the connections."""
        self.pacers.close()
        if self._http is not None:
            self._http.close()
