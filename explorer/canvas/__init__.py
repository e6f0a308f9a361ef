"""The graph canvas: layout, batch drawing, hit test, gestures."""
