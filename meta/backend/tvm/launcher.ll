; Runs TVM's parallel loops in a team of OpenMP; see launcher.py, which adds the target and reads the address.

%region = type { ptr, ptr, ptr, ptr, i32 }  ; loop body, its data, counters of barriers, first error, its code
%team = type { ptr, i32 }                   ; TVMParallelGroupEnv: counters of barriers, number of threads

@parallel = internal global ptr null        ; GOMP_parallel; null: TVM's own threads run loops
@thread_number = internal global ptr null   ; omp_get_thread_num
@team_size = internal global ptr null       ; omp_get_num_threads
@thread_count = internal global ptr null    ; how many threads the calling thread may use
@most = internal global i64 0               ; threads of a loop

declare i32 @TVMBackendParallelLaunch(ptr, ptr, i32)
declare void @TVMFFIErrorMoveFromRaised(ptr)
declare void @TVMFFIErrorSetRaised(ptr)
declare i32 @TVMFFIObjectDecRef(ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; As TVMBackendParallelLaunch. tasks: the number of threads, 0 for all.
define internal i32 @launch(ptr %body, ptr %data, i32 %tasks) {
  %parallel = load atomic ptr, ptr @parallel acquire, align 8
  %is_off = icmp eq ptr %parallel, null
  br i1 %is_off, label %threads_of_tvm, label %openmp

threads_of_tvm:
  %tvm_code = tail call i32 @TVMBackendParallelLaunch(ptr %body, ptr %data, i32 %tasks)
  ret i32 %tvm_code

openmp:
  %count = load ptr, ptr @thread_count
  %usable = call i32 %count()
  %has_tasks = icmp sgt i32 %tasks, 0
  %wanted = select i1 %has_tasks, i32 %tasks, i32 %usable
  %wide = zext i32 %wanted to i64
  %limit = load i64, ptr @most
  %threads = call i64 @llvm.umin.i64(i64 %wide, i64 %limit)
  %bytes = shl i64 %threads, 6
  %counters = alloca i8, i64 %bytes, align 64
  call void @llvm.memset.p0.i64(ptr align 64 %counters, i8 0, i64 %bytes, i1 false)
  %is_serial = icmp ule i64 %threads, 1
  br i1 %is_serial, label %one_thread, label %several_threads

one_thread:
  %one = alloca %team
  store ptr %counters, ptr %one
  %one_size = getelementptr %team, ptr %one, i32 0, i32 1
  store i32 1, ptr %one_size
  %one_code = call i32 %body(i32 0, ptr %one, ptr %data)
  ret i32 %one_code

several_threads:
  %region = alloca %region
  %region_data = getelementptr %region, ptr %region, i32 0, i32 1
  %region_counters = getelementptr %region, ptr %region, i32 0, i32 2
  %region_error = getelementptr %region, ptr %region, i32 0, i32 3
  %region_code = getelementptr %region, ptr %region, i32 0, i32 4
  store ptr %body, ptr %region
  store ptr %data, ptr %region_data
  store ptr %counters, ptr %region_counters
  store ptr null, ptr %region_error
  store i32 0, ptr %region_code
  %size = trunc i64 %threads to i32
  call void %parallel(ptr @run, ptr %region, i32 %size, i32 0)
  %code = load i32, ptr %region_code
  %error = load ptr, ptr %region_error
  %has_error = icmp ne ptr %error, null
  br i1 %has_error, label %raise, label %done

raise:
  call void @TVMFFIErrorSetRaised(ptr %error)
  %released = call i32 @TVMFFIObjectDecRef(ptr %error)
  br label %done

done:
  ret i32 %code
}

; One thread of a team. OpenMP may start fewer threads than asked for, and one inside another team.
define internal void @run(ptr %region) {
  %get_number = load ptr, ptr @thread_number
  %number = call i32 %get_number()
  %get_size = load ptr, ptr @team_size
  %size = call i32 %get_size()
  %region_data = getelementptr %region, ptr %region, i32 0, i32 1
  %region_counters = getelementptr %region, ptr %region, i32 0, i32 2
  %body = load ptr, ptr %region
  %data = load ptr, ptr %region_data
  %counters = load ptr, ptr %region_counters
  %team = alloca %team
  %team_size = getelementptr %team, ptr %team, i32 0, i32 1
  store ptr %counters, ptr %team
  store i32 %size, ptr %team_size
  %code = call i32 %body(i32 %number, ptr %team, ptr %data)
  %is_done = icmp eq i32 %code, 0
  br i1 %is_done, label %done, label %failed

failed:
  %region_code = getelementptr %region, ptr %region, i32 0, i32 4
  %exchange = cmpxchg ptr %region_code, i32 0, i32 %code seq_cst seq_cst
  %is_first = extractvalue { i32, i1 } %exchange, 1
  br i1 %is_first, label %keep, label %done

keep:                                       ; the error is the thread's own: pass it to the thread that launched
  %region_error = getelementptr %region, ptr %region, i32 0, i32 3
  call void @TVMFFIErrorMoveFromRaised(ptr %region_error)
  br label %done

done:
  ret void
}

; configure(parallel, thread_number, team_size, thread_count, most): integers. Arguments of TVM's functions have 16 bytes.
define i32 @__tvm_ffi_configure(ptr %self, ptr %args, i32 %count, ptr %result) {
  %at_parallel = getelementptr i8, ptr %args, i64 8
  %at_number = getelementptr i8, ptr %args, i64 24
  %at_size = getelementptr i8, ptr %args, i64 40
  %at_count = getelementptr i8, ptr %args, i64 56
  %at_most = getelementptr i8, ptr %args, i64 72
  %parallel = load ptr, ptr %at_parallel
  %number = load ptr, ptr %at_number
  %size = load ptr, ptr %at_size
  %thread_count = load ptr, ptr %at_count
  %most = load i64, ptr %at_most
  store ptr %number, ptr @thread_number
  store ptr %size, ptr @team_size
  store ptr %thread_count, ptr @thread_count
  store i64 %most, ptr @most
  store atomic ptr %parallel, ptr @parallel release, align 8
  ret i32 0
}

; The address of @launch; 1 is the type number of integers.
define i32 @__tvm_ffi_address(ptr %self, ptr %args, i32 %count, ptr %result) {
  %at_value = getelementptr i8, ptr %result, i64 8
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @launch to i64), ptr %at_value
  ret i32 0
}
