"""Tilewright's model: everything but the window, and never Qt.

Map of the rooms, lower ones never import higher ones:

graph      operators as loop nests, tensors, readers (the only room that sees onnx)
hardware   the machine: memory levels, units, launch; loader of the TOML files
plan       fusion groups, tiles, edits, legality with reasons, text notation
cost       one request (graph, hardware, plan) to traffic, footprint, registers, time
serving    requests, queue, slots, tail latency
search     tiles and boundaries (own issue)
evidence   claims, calibration (own issue)
session    ledger and worksheet (own issue)
commands   one file a command
compiled   where Numba's cache lives; the list of kernels
errors     the one family of errors that a user sees
"""

__version__ = "0.1.0"
