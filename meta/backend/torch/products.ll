; Matrix products by the BLAS that torch has loaded; see products.py, which adds the target, the addresses and the
; exported functions.

%tensor = type { ptr, i64, i32, i32, ptr, ptr, i64 }  ; DLTensor: data, device, rank, dtype, shape, strides, offset

@single = internal global ptr null  ; sgemm_
@double = internal global ptr null  ; dgemm_
@no = private constant [2 x i8] c"N\00"
@yes = private constant [2 x i8] c"T\00"

declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; The DLTensor of an argument: a pointer to one (type number 7), or an object with one after its header of 24 bytes.
define internal ptr @tensor(ptr %args, i64 %index) {
  %argument = getelementptr [2 x i64], ptr %args, i64 %index
  %number = load i32, ptr %argument
  %at_value = getelementptr i64, ptr %argument, i64 1
  %value = load ptr, ptr %at_value
  %inside = getelementptr i8, ptr %value, i64 24
  %is_pointer = icmp eq i32 %number, 7
  %tensor = select i1 %is_pointer, ptr %value, ptr %inside
  ret ptr %tensor
}

define internal ptr @data(ptr %tensor) {
  %start = load ptr, ptr %tensor
  %at_offset = getelementptr %tensor, ptr %tensor, i32 0, i32 6
  %offset = load i64, ptr %at_offset
  %data = getelementptr i8, ptr %start, i64 %offset
  ret ptr %data
}

; The size of the axis `back` from the end.
define internal i64 @extent(ptr %tensor, i32 %back) {
  %at_rank = getelementptr %tensor, ptr %tensor, i32 0, i32 2
  %rank = load i32, ptr %at_rank
  %at_shape = getelementptr %tensor, ptr %tensor, i32 0, i32 4
  %shape = load ptr, ptr %at_shape
  %axis = sub i32 %rank, %back
  %wide = sext i32 %axis to i64
  %at_size = getelementptr i64, ptr %shape, i64 %wide
  %size = load i64, ptr %at_size
  ret i64 %size
}

; The product of all sizes but the last.
define internal i64 @rows(ptr %tensor) {
entry:
  %at_rank = getelementptr %tensor, ptr %tensor, i32 0, i32 2
  %rank = load i32, ptr %at_rank
  br label %loop

loop:
  %back = phi i32 [ %rank, %entry ], [ %next, %multiply ]
  %rows = phi i64 [ 1, %entry ], [ %more, %multiply ]
  %has_axis = icmp sgt i32 %back, 1
  br i1 %has_axis, label %multiply, label %done

multiply:
  %size = call i64 @extent(ptr %tensor, i32 %back)
  %more = mul i64 %rows, %size
  %next = sub i32 %back, 1
  br label %loop

done:
  ret i64 %rows
}

; out = a @ b (+ bias), in the order of rows, which is out' = b' @ a' in that of columns.
; args: a of any rank (of two if it is transposed), b of two, the bias of one, out.
; Sizes are passed as integers of 64 bits, of which a BLAS for 32 reads the lower half.
define internal void @multiply(ptr %args, ptr %gemm, ptr %one, ptr %zero, i64 %bytes,
                               i1 %transposed_a, i1 %transposed_b, i1 %has_bias) {
entry:
  %a = call ptr @tensor(ptr %args, i64 0)
  %b = call ptr @tensor(ptr %args, i64 1)
  %last = select i1 %has_bias, i64 3, i64 2
  %out = call ptr @tensor(ptr %args, i64 %last)
  %a_data = call ptr @data(ptr %a)
  %b_data = call ptr @data(ptr %b)
  %out_data = call ptr @data(ptr %out)
  %m = call i64 @rows(ptr %out)
  %n = call i64 @extent(ptr %out, i32 1)
  %back = select i1 %transposed_b, i32 1, i32 2
  %k = call i64 @extent(ptr %b, i32 %back)
  %a_width = select i1 %transposed_a, i64 %m, i64 %k
  %b_width = select i1 %transposed_b, i64 %k, i64 %n
  %a_step = call i64 @llvm.umax.i64(i64 %a_width, i64 1)
  %b_step = call i64 @llvm.umax.i64(i64 %b_width, i64 1)
  %out_step = call i64 @llvm.umax.i64(i64 %n, i64 1)
  %sizes = alloca [6 x i64]
  %at_m = getelementptr i64, ptr %sizes, i64 0
  %at_n = getelementptr i64, ptr %sizes, i64 1
  %at_k = getelementptr i64, ptr %sizes, i64 2
  %at_a_step = getelementptr i64, ptr %sizes, i64 3
  %at_b_step = getelementptr i64, ptr %sizes, i64 4
  %at_out_step = getelementptr i64, ptr %sizes, i64 5
  store i64 %m, ptr %at_m
  store i64 %n, ptr %at_n
  store i64 %k, ptr %at_k
  store i64 %a_step, ptr %at_a_step
  store i64 %b_step, ptr %at_b_step
  store i64 %out_step, ptr %at_out_step
  %a_order = select i1 %transposed_a, ptr @yes, ptr @no
  %b_order = select i1 %transposed_b, ptr @yes, ptr @no
  %beta = select i1 %has_bias, ptr %one, ptr %zero
  br i1 %has_bias, label %add_bias, label %call

add_bias:
  %bias = call ptr @tensor(ptr %args, i64 2)
  %bias_data = call ptr @data(ptr %bias)
  %row_bytes = mul i64 %n, %bytes
  br label %row

row:
  %i = phi i64 [ 0, %add_bias ], [ %next, %copy ]
  %is_row = icmp ult i64 %i, %m
  br i1 %is_row, label %copy, label %call

copy:
  %position = mul i64 %i, %row_bytes
  %target = getelementptr i8, ptr %out_data, i64 %position
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %bias_data, i64 %row_bytes, i1 false)
  %next = add i64 %i, 1
  br label %row

call:
  call void %gemm(ptr %b_order, ptr %a_order, ptr %at_n, ptr %at_m, ptr %at_k, ptr %one, ptr %b_data, ptr %at_b_step,
                  ptr %a_data, ptr %at_a_step, ptr %beta, ptr %out_data, ptr %at_out_step)
  ret void
}

@one_single = private constant float 1.0
@zero_single = private constant float 0.0
@one_double = private constant double 1.0
@zero_double = private constant double 0.0

; configure(single, double): addresses. Arguments of TVM's functions have 16 bytes.
define i32 @__tvm_ffi_configure(ptr %self, ptr %args, i32 %count, ptr %result) {
  %at_single = getelementptr i8, ptr %args, i64 8
  %at_double = getelementptr i8, ptr %args, i64 24
  %single = load ptr, ptr %at_single
  %double = load ptr, ptr %at_double
  store ptr %single, ptr @single
  store ptr %double, ptr @double
  ret i32 0
}
