"""The docks around the canvas, one file a panel."""
