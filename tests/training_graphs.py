"""Training steps of small perceptrons, built without a file: forward, loss, backward and SGD."""

from __future__ import annotations

from model.graph.graph import Axis, Dim, OperatorGraph, OpKind

from .cost_graphs import Sketch


class _Step(Sketch):
    def grown(self, a: str, b: str, output: str) -> str:
        """``output[i, j] = sum_m a[m, i] b[m, j]``: the gradient of a weight."""
        dims = [
            Dim("i", self.shapes[a][1]),
            Dim("j", self.shapes[b][1]),
            Dim("m", self.shapes[a][0], reduction=True),
        ]
        i, j, m = (Axis(((d, 1),)) for d in range(3))
        return self.add("Gemm", OpKind.CONTRACTION, dims, [(a, [m, i]), (b, [m, j])], (output, [i, j]))

    def back(self, a: str, b: str, output: str) -> str:
        """``output[m, i] = sum_j a[m, j] b[i, j]``: the gradient of an activation."""
        dims = [
            Dim("m", self.shapes[a][0]),
            Dim("i", self.shapes[b][0]),
            Dim("j", self.shapes[a][1], reduction=True),
        ]
        m, i, j = (Axis(((d, 1),)) for d in range(3))
        return self.add("Gemm", OpKind.CONTRACTION, dims, [(a, [m, j]), (b, [i, j])], (output, [m, i]))

    def loss(self, x: str, output: str) -> str:
        """The sum of all elements."""
        dims = [Dim(f"i{i}", e, reduction=True) for i, e in enumerate(self.shapes[x])]
        axes = [Axis(((i, 1),)) for i in range(len(dims))]
        self.tensor(output)
        return self.add("ReduceSum", OpKind.REDUCTION, dims, [(x, axes)], (output, []), (("add", 1.0),))


def chain(batch: int, widths: list[int], relu: bool = False, loss: bool = True) -> OperatorGraph:
    """``y_l = y_{l-1} W_l`` (with relu: ``h_l = relu(y_l)`` between layers), its gradients, ``W_l - dW_l``.

    The loss is the sum of the last y, so that its gradient there is a graph input ``e`` times that y: the backward pass
    needs every y. Without ``loss`` the file hands out weights only.
    """
    step = _Step("float16")
    layers = len(widths) - 1
    step.tensor("y0", batch, widths[0])
    for layer in range(1, layers + 1):
        step.tensor(f"W{layer}", widths[layer - 1], widths[layer])
    step.tensor("e", batch, widths[-1])
    inputs = {1: "y0"}
    for layer in range(1, layers + 1):
        y = step.product(inputs[layer], f"W{layer}", f"y{layer}")
        inputs[layer + 1] = step.pointwise("Relu", [y], f"h{layer}", "relu") if relu and layer < layers else y
    outputs = []
    if loss:
        outputs.append(step.loss(f"y{layers}", "loss"))
    delta = step.pointwise("Mul", [f"y{layers}", "e"], f"d{layers}", "mul")
    for layer in range(layers, 0, -1):
        step.grown(inputs[layer], delta, f"dW{layer}")
        outputs.append(step.pointwise("Sub", [f"W{layer}", f"dW{layer}"], f"W{layer}_new"))
        if layer > 1:
            delta = step.back(delta, f"W{layer}", f"g{layer - 1}")
            if relu:
                delta = step.pointwise("Where", [f"y{layer - 1}", delta], f"d{layer - 1}")
    return step.graph(*outputs)
