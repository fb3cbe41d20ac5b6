; Calls a function of another package with some arguments fixed and the others in their order; see bound.py.

%value = type { i32, i32, i64 }             ; an argument: number of its type, padding, contents
%bound = type { ptr, ptr, i64 }             ; the function, the text of its errors, the number of arguments that follow

@kernel_error = internal constant [17 x i8] c"meta.KernelError\00"
@raised = internal constant [9 x i8] c" raised \00"
@colon = internal constant [3 x i8] c": \00"
@returned = internal constant [63 x i8] c" returned a value; expected that it writes its results instead\00"

declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @TVMFFIFunctionCreate(ptr, ptr, ptr, ptr)
declare void @TVMFFIErrorMoveFromRaised(ptr)
declare void @TVMFFIErrorSetRaisedFromCStrParts(ptr, ptr, i32)
declare i32 @TVMFFIObjectIncRef(ptr)
declare i32 @TVMFFIObjectDecRef(ptr)

; bind(function, text, *arguments): a function that calls `function` with the arguments. A pointer among them is the
; position of an argument of the call. Without a text, errors and results are the function's own. Contents of objects
; follow a header of 24 bytes.
define i32 @__tvm_ffi_bind(ptr %self, ptr %args, i32 %given, ptr %result) {
entry:
  %wide = sext i32 %given to i64
  %count = sub i64 %wide, 2
  %value_bytes = shl i64 %count, 4
  %bytes = add i64 %value_bytes, 24
  %bound = call ptr @malloc(i64 %bytes)
  %at_text = getelementptr %bound, ptr %bound, i32 0, i32 1
  %at_count = getelementptr %bound, ptr %bound, i32 0, i32 2
  %values = getelementptr %bound, ptr %bound, i32 1
  %from_function = getelementptr i8, ptr %args, i64 8
  %from_text = getelementptr i8, ptr %args, i64 24
  %function = load ptr, ptr %from_function
  %text = load ptr, ptr %from_text
  store ptr %function, ptr %bound
  store ptr %text, ptr %at_text
  store i64 %count, ptr %at_count
  %kept_function = call i32 @TVMFFIObjectIncRef(ptr %function)
  %has_text = icmp ne ptr %text, null
  br i1 %has_text, label %keep_text, label %next

keep_text:
  %kept_text = call i32 @TVMFFIObjectIncRef(ptr %text)
  br label %next

next:
  %i = phi i64 [ 0, %entry ], [ 0, %keep_text ], [ %i_after, %stored ]
  %is_done = icmp eq i64 %i, %count
  br i1 %is_done, label %done, label %copy

copy:
  %source_index = add i64 %i, 2
  %source = getelementptr %value, ptr %args, i64 %source_index
  %target = getelementptr %value, ptr %values, i64 %i
  %copied = load %value, ptr %source
  store %value %copied, ptr %target
  %type = extractvalue %value %copied, 0
  %is_object = icmp sge i32 %type, 64
  br i1 %is_object, label %keep, label %stored

keep:
  %at_object = getelementptr %value, ptr %target, i32 0, i32 2
  %object = load ptr, ptr %at_object
  %kept = call i32 @TVMFFIObjectIncRef(ptr %object)
  br label %stored

stored:
  %i_after = add i64 %i, 1
  br label %next

done:
  %at_result = getelementptr i8, ptr %result, i64 8
  store i32 68, ptr %result                 ; the number of the type of functions
  %code = call i32 @TVMFFIFunctionCreate(ptr %bound, ptr @call, ptr @drop, ptr %at_result)
  ret i32 %code
}

define internal i32 @call(ptr %bound, ptr %args, i32 %given, ptr %result) {
entry:
  %at_count = getelementptr %bound, ptr %bound, i32 0, i32 2
  %values = getelementptr %bound, ptr %bound, i32 1
  %count = load i64, ptr %at_count
  %passed = alloca %value, i64 %count
  br label %next

next:
  %i = phi i64 [ 0, %entry ], [ %i_after, %store ]
  %is_filled = icmp eq i64 %i, %count
  br i1 %is_filled, label %run, label %choose

choose:
  %fixed = getelementptr %value, ptr %values, i64 %i
  %type = load i32, ptr %fixed
  %is_position = icmp eq i32 %type, 4       ; the number of the type of pointers
  br i1 %is_position, label %take, label %store

take:
  %at_position = getelementptr %value, ptr %fixed, i32 0, i32 2
  %position = load i64, ptr %at_position
  %taken = getelementptr %value, ptr %args, i64 %position
  br label %store

store:
  %source = phi ptr [ %fixed, %choose ], [ %taken, %take ]
  %target = getelementptr %value, ptr %passed, i64 %i
  %copied = load %value, ptr %source
  store %value %copied, ptr %target
  %i_after = add i64 %i, 1
  br label %next

run:
  %function = load ptr, ptr %bound
  %at_code = getelementptr i8, ptr %function, i64 24
  %safe_call = load ptr, ptr %at_code
  %narrow = trunc i64 %count to i32
  %code = call i32 %safe_call(ptr %function, ptr %passed, i32 %narrow, ptr %result)
  %at_text = getelementptr %bound, ptr %bound, i32 0, i32 1
  %text = load ptr, ptr %at_text
  %is_plain = icmp eq ptr %text, null
  br i1 %is_plain, label %plain, label %checked

plain:
  ret i32 %code

checked:
  %at_chars = getelementptr i8, ptr %text, i64 24
  %chars = load ptr, ptr %at_chars
  %parts = alloca [5 x ptr]
  %part1 = getelementptr ptr, ptr %parts, i64 1
  %part2 = getelementptr ptr, ptr %parts, i64 2
  %part3 = getelementptr ptr, ptr %parts, i64 3
  %part4 = getelementptr ptr, ptr %parts, i64 4
  store ptr %chars, ptr %parts
  switch i32 %code, label %failed [ i32 0, label %succeeded
                                    i32 -2, label %passed_on ]

passed_on:                                  ; an error of Python, which it keeps itself
  ret i32 -2

failed:
  %error_place = alloca ptr
  call void @TVMFFIErrorMoveFromRaised(ptr %error_place)
  %error = load ptr, ptr %error_place
  %at_kind = getelementptr i8, ptr %error, i64 24
  %at_message = getelementptr i8, ptr %error, i64 40
  %error_kind = load ptr, ptr %at_kind
  %message = load ptr, ptr %at_message
  store ptr @raised, ptr %part1
  store ptr %error_kind, ptr %part2
  store ptr @colon, ptr %part3
  store ptr %message, ptr %part4
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr @kernel_error, ptr %parts, i32 5)
  %released = call i32 @TVMFFIObjectDecRef(ptr %error)
  ret i32 -1

succeeded:
  %result_type = load i32, ptr %result
  %is_nothing = icmp eq i32 %result_type, 0
  br i1 %is_nothing, label %done, label %refuse

done:
  ret i32 0

refuse:
  %is_object = icmp sge i32 %result_type, 64
  br i1 %is_object, label %release, label %report

release:
  %at_value = getelementptr i8, ptr %result, i64 8
  %value = load ptr, ptr %at_value
  %dropped = call i32 @TVMFFIObjectDecRef(ptr %value)
  br label %report

report:
  store i32 0, ptr %result
  store ptr @returned, ptr %part1
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr @kernel_error, ptr %parts, i32 2)
  ret i32 -1
}

define internal void @drop(ptr %bound) {
entry:
  %at_text = getelementptr %bound, ptr %bound, i32 0, i32 1
  %at_count = getelementptr %bound, ptr %bound, i32 0, i32 2
  %values = getelementptr %bound, ptr %bound, i32 1
  %function = load ptr, ptr %bound
  %text = load ptr, ptr %at_text
  %count = load i64, ptr %at_count
  %dropped_function = call i32 @TVMFFIObjectDecRef(ptr %function)
  %has_text = icmp ne ptr %text, null
  br i1 %has_text, label %drop_text, label %next

drop_text:
  %dropped_text = call i32 @TVMFFIObjectDecRef(ptr %text)
  br label %next

next:
  %i = phi i64 [ 0, %entry ], [ 0, %drop_text ], [ %i_after, %dropped ]
  %is_done = icmp eq i64 %i, %count
  br i1 %is_done, label %done, label %look

look:
  %value = getelementptr %value, ptr %values, i64 %i
  %type = load i32, ptr %value
  %is_object = icmp sge i32 %type, 64
  br i1 %is_object, label %drop, label %dropped

drop:
  %at_object = getelementptr %value, ptr %value, i32 0, i32 2
  %object = load ptr, ptr %at_object
  %dropped_object = call i32 @TVMFFIObjectDecRef(ptr %object)
  br label %dropped

dropped:
  %i_after = add i64 %i, 1
  br label %next

done:
  call void @free(ptr %bound)
  ret void
}
