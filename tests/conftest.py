"""What holds for every test."""

import signal

from hypothesis import settings

# Speed is measured by benchmarks/; a busy machine must not fail a property.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell without job control starts what stands before `&` deaf to Ctrl-C, and so would be the
# programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
