"""The graph canvas: one widget, no item per operator.

blocks.py      the inside of a group, one per shape       scene.py      arrays of what is drawn, hit test
layout.py      groups in layers, lines between (worker)   heat.py       DRAM bytes per operator and their scale
transition.py  from one layout to the next                painter.py    draws a scene in batches, by detail
cuts.py        where a boundary may lie                   backing.py    the picture kept between frames
gestures.py    what the hand does, an object each         overlay.py    what follows the pointer
stage.py       scene, camera and layouts together         legend.py     the heat scale, below the picture
minimap.py, selection_bar.py, tips.py, walking.py
view.py        the widget: events, keys, actions          accessible.py for screen readers
"""
