"""The TIR interpreter: every participant executed under adversarial schedules.

Warps and asynchronous engines run with real layouts, ring slots and barriers; what races,
hangs, reads what nobody wrote or leaves its bounds is reported (:class:`Report`).
"""

from tilefoundry.interpret.report import Access, Report
from tilefoundry.interpret.run import Outcome, run, run_program
from tilefoundry.interpret.schedule import POLICIES

__all__ = ["POLICIES", "Access", "Outcome", "Report", "run", "run_program"]
