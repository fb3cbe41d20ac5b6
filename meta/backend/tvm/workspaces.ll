; Memory of the buffers inside of kernels; see workspaces.py, which adds the target and reads the addresses.

@memory_ran_out = private constant [18 x i8] c"meta.MemoryRanOut\00"
@format = private constant [66 x i8] c"memory ran out: a kernel needs %llu bytes for intermediate values\00"

declare ptr @TVMBackendAllocWorkspace(i32, i32, i64, i32, i32)
declare i32 @TVMBackendFreeWorkspace(i32, i32, ptr)
declare void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @snprintf(ptr, i64, ptr, ...)

; As TVMBackendAllocWorkspace, but null with an error, which kernels pass on, if there is no memory. Memory of 256 MiB and
; more goes back to the system after use. The 64 bytes before the result say where it comes from: 0 is TVM's pool, 1 the
; system.
define internal ptr @allocate(i32 %device, i32 %index, i64 %bytes, i32 %code, i32 %bits) {
  %is_cpu = icmp eq i32 %device, 1
  br i1 %is_cpu, label %host, label %other

other:
  %of_device = tail call ptr @TVMBackendAllocWorkspace(i32 %device, i32 %index, i64 %bytes, i32 %code, i32 %bits)
  ret ptr %of_device

host:
  %slot = alloca ptr
  %size = add i64 %bytes, 64
  %is_absurd = icmp ugt i64 %bytes, 4611686018427387904
  br i1 %is_absurd, label %failed, label %possible

possible:
  %is_small = icmp ult i64 %size, 1048576
  br i1 %is_small, label %pool, label %request

request:                                    ; whether the system has the memory, which TVM's pool does not ask
  %status = call i32 @posix_memalign(ptr %slot, i64 64, i64 %size)
  %is_granted = icmp eq i32 %status, 0
  br i1 %is_granted, label %granted, label %failed

granted:
  %block = load ptr, ptr %slot
  %is_large = icmp uge i64 %size, 268435456
  br i1 %is_large, label %done, label %return

return:
  call void @free(ptr %block)
  br label %pool

pool:
  %pooled = call ptr @TVMBackendAllocWorkspace(i32 1, i32 %index, i64 %size, i32 %code, i32 %bits)
  br label %done

done:
  %start = phi ptr [ %block, %granted ], [ %pooled, %pool ]
  %source = phi i64 [ 1, %granted ], [ 0, %pool ]
  store i64 %source, ptr %start
  %data = getelementptr i8, ptr %start, i64 64
  ret ptr %data

failed:
  %text = alloca [128 x i8]
  %length = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 128, ptr @format, i64 %bytes)
  call void @TVMFFIErrorSetRaisedFromCStr(ptr @memory_ran_out, ptr %text)
  ret ptr null
}

; As TVMBackendFreeWorkspace.
define internal i32 @release(i32 %device, i32 %index, ptr %data) {
  %is_cpu = icmp eq i32 %device, 1
  br i1 %is_cpu, label %host, label %other

other:
  %of_device = tail call i32 @TVMBackendFreeWorkspace(i32 %device, i32 %index, ptr %data)
  ret i32 %of_device

host:
  %start = getelementptr i8, ptr %data, i64 -64
  %source = load i64, ptr %start
  %is_pooled = icmp eq i64 %source, 0
  br i1 %is_pooled, label %pool, label %system

pool:
  %code = tail call i32 @TVMBackendFreeWorkspace(i32 1, i32 %index, ptr %start)
  ret i32 %code

system:
  call void @free(ptr %start)
  ret i32 0
}

; The addresses of @allocate and @release; 1 is the type number of integers.
define i32 @__tvm_ffi_allocate(ptr %self, ptr %args, i32 %count, ptr %result) {
  %at_value = getelementptr i8, ptr %result, i64 8
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @allocate to i64), ptr %at_value
  ret i32 0
}

define i32 @__tvm_ffi_release(ptr %self, ptr %args, i32 %count, ptr %result) {
  %at_value = getelementptr i8, ptr %result, i64 8
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @release to i64), ptr %at_value
  ret i32 0
}
