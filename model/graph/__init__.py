"""Operators as loop nests, tensors, and the readers of files.

graph.py       Tensor, Axis, Access, Operator, OperatorGraph and its arrays
dtypes.py      element types and their bits
load.py        load_graph: a file or a sample's name -> OperatorGraph
summary.py     a graph in words: inspect's JSON and the text for a person
bindings.py    symbolic dims and the numbers they are bound to

table.py       the operator-type table: one row per op type -> loop nest
row.py         what a row gets (a call with operands) and gives (loops)
contractions.py, elementwise.py, movement.py, windows.py   the kinds of rows
xla.py, aten.py   the operators of StableHLO and HLO, and of torch

incoming.py    a file from someone else, copied without passing through memory as a whole
sniff.py       what the bytes of a file are, before anyone parses them
child.py       both ends of the limited child process
raw.py         what the child answers, checked on arrival
readers.py     in the child: which reader reads what
onnx_file.py   in the child: parse, write down what was found
reader_*.py    in the child: other formats, each into a translated.Translation; xla_text.py what two share
functions.py   in the child: model-local functions written out under a cap
wiring.py      in the child: order, cycles, double writers, undefined values
inference.py   in the child: shapes, and everything that is computed only from constants

layering.py, ordering.py, alignment.py   layered layout kernels
"""
