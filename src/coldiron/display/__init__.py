"""What a person sees of a run: live on a terminal, plain lines elsewhere, and a summary at its end.

Everything here is fed by `coldiron.run.state.RunState` alone, so a run that is on and a recorded one look
the same.
"""

from coldiron.display.estimate import Estimate, from_states
from coldiron.display.summary import print_end
from coldiron.display.view import View, make_view

__all__ = ["Estimate", "View", "from_states", "make_view", "print_end"]
