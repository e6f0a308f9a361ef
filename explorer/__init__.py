"""The Qt window. `__main__` dispatches commands without importing Qt; `app.py` builds and wires the rest."""
