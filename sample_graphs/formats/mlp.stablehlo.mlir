"builtin.module"() <{sym_name = "mlp"}> ({
  "func.func"() <{function_type = (tensor<8x64xf16>, tensor<64x256xf16>, tensor<256x64xf16>) -> tensor<8x64xf16>, sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%x: tensor<8x64xf16>, %w1: tensor<64x256xf16>, %w2: tensor<256x64xf16>):
    %first = "stablehlo.dot_general"(%x, %w1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<8x64xf16>, tensor<64x256xf16>) -> tensor<8x256xf16>
    %act = "func.call"(%first) <{callee = @scaled_tanh}> : (tensor<8x256xf16>) -> tensor<8x256xf16>
    %second = "stablehlo.dot_general"(%act, %w2) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<8x256xf16>, tensor<256x64xf16>) -> tensor<8x64xf16>
    %sum = "stablehlo.add"(%second, %x) : (tensor<8x64xf16>, tensor<8x64xf16>) -> tensor<8x64xf16>
    "func.return"(%sum) : (tensor<8x64xf16>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<8x256xf16>) -> tensor<8x256xf16>, sym_name = "scaled_tanh", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<8x256xf16>):
    %half = "stablehlo.constant"() <{value = dense<5.000000e-01> : tensor<f16>}> : () -> tensor<f16>
    %halves = "stablehlo.broadcast_in_dim"(%half) <{broadcast_dimensions = array<i64>}> : (tensor<f16>) -> tensor<8x256xf16>
    %scaled = "stablehlo.multiply"(%arg0, %halves) : (tensor<8x256xf16>, tensor<8x256xf16>) -> tensor<8x256xf16>
    %tanh = "stablehlo.tanh"(%scaled) : (tensor<8x256xf16>) -> tensor<8x256xf16>
    "func.return"(%tanh) : (tensor<8x256xf16>) -> ()
  }) : () -> ()
}) : () -> ()
