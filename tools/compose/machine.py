"""The facts about this machine that `omac sandbox doctor` judges."""

from omac.adapters.sandbox.probes import machine

probe_machine = machine  # it takes some 50 ms
