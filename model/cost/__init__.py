"""From (graph, hardware, plan) to traffic, footprint, registers and time."""
