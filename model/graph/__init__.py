"""Operators as loop nests, tensors, and the readers of files.

graph.py      Tensor, Axis, Access, Operator, OperatorGraph and its arrays
dtypes.py     element types and their bits"""
