/* Programs that meta saved with executor.save(path, format="library"), called from C.
 *
 * Link with TVM's runtime and its FFI (libtvm_runtime, libtvm_ffi of the version that saved the program); their headers
 * are in the folder that tvm_ffi.libinfo.find_include_path() names, this one in meta/vm/saved.
 *
 *     meta_program program;
 *     if (meta_program_open(&program, "model.so", kDLCPU, 0)) { ... meta_program_error(text, sizeof text) ... }
 *     int count = meta_program_run(&program, arguments, 3, results, 1);
 *     meta_program_close(&program);
 *
 * Opening a library runs code of it: open only libraries that you trust. A program is used by one thread at a time.
 */
#ifndef META_PROGRAM_H_
#define META_PROGRAM_H_

#include <string.h>
#include <tvm/ffi/c_api.h>

typedef struct {
  TVMFFIObjectHandle library;
  TVMFFIObjectHandle machine;
  TVMFFIObjectHandle run;
} meta_program;

/* Bytes that the addresses of arguments are multiples of. */
enum { META_PROGRAM_ALIGNMENT = 64 };

static TVMFFIAny meta_any_(int32_t type_index) {
  TVMFFIAny any;
  memset(&any, 0, sizeof any);
  any.type_index = type_index;
  return any;
}

static TVMFFIAny meta_object_(int32_t type_index, TVMFFIObjectHandle object) {
  TVMFFIAny any = meta_any_(type_index);
  any.v_obj = (TVMFFIObject*)object;
  return any;
}

static TVMFFIAny meta_int_(int64_t value) {
  TVMFFIAny any = meta_any_(kTVMFFIInt);
  any.v_int64 = value;
  return any;
}

static TVMFFIAny meta_text_(const char* text) {
  TVMFFIAny any = meta_any_(kTVMFFIRawStr);
  any.v_c_str = text;
  return any;
}

/* Call a function of TVM's registry. */
static int meta_global_(const char* name, TVMFFIAny* args, int32_t count, TVMFFIAny* out) {
  TVMFFIByteArray bytes = {name, strlen(name)};
  TVMFFIObjectHandle function = NULL;
  *out = meta_any_(kTVMFFINone);
  if (TVMFFIFunctionGetGlobal(&bytes, &function)) return -1;
  if (function == NULL) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "TVM's runtime lacks a function; link with libtvm_runtime");
    return -1;
  }
  int status = TVMFFIFunctionCall(function, args, count, out);
  TVMFFIObjectDecRef(function);
  return status;
}

/* A function of a module. */
static int meta_function_(TVMFFIObjectHandle module, const char* name, TVMFFIObjectHandle* out) {
  TVMFFIAny args[3] = {meta_object_(kTVMFFIModule, module), meta_text_(name), meta_any_(kTVMFFIBool)};
  TVMFFIAny found;
  if (meta_global_("ffi.ModuleGetFunction", args, 3, &found)) return -1;
  if (found.type_index != kTVMFFIFunction) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "the library is not a program of meta");
    return -1;
  }
  *out = found.v_obj;
  return 0;
}

static void meta_program_close(meta_program* program) {
  if (program->run) TVMFFIObjectDecRef(program->run);
  if (program->machine) TVMFFIObjectDecRef(program->machine);
  if (program->library) TVMFFIObjectDecRef(program->library);
  memset(program, 0, sizeof *program);
}

/* Load a library for a device, such as kDLCPU, 0. Returns 0, or -1 after an error. */
static int meta_program_open(meta_program* program, const char* path, int device_type, int device_id) {
  memset(program, 0, sizeof *program);
  TVMFFIAny name = meta_text_(path), module, machine = meta_any_(kTVMFFINone), nothing = meta_any_(kTVMFFINone);
  TVMFFIObjectHandle function = NULL;
  if (meta_global_("ffi.ModuleLoadFromFile", &name, 1, &module)) return -1;
  program->library = module.v_obj;
  if (meta_function_(program->library, "vm_load_executable", &function)) goto failed;
  int status = TVMFFIFunctionCall(function, NULL, 0, &machine);
  TVMFFIObjectDecRef(function);
  if (status) goto failed;
  program->machine = machine.v_obj;
  if (meta_function_(program->machine, "vm_initialization", &function)) goto failed;
  /* Of each device its type, its number and an allocator that keeps freed memory; sizes are computed on the CPU. */
  TVMFFIAny devices[6] = {meta_int_(device_type), meta_int_(device_id), meta_int_(2),
                          meta_int_(kDLCPU),      meta_int_(0),         meta_int_(2)};
  status = TVMFFIFunctionCall(function, devices, device_type == kDLCPU ? 3 : 6, &nothing);
  TVMFFIObjectDecRef(function);
  if (status || meta_function_(program->machine, "main", &program->run)) goto failed;
  return 0;
failed:
  meta_program_close(program);
  return -1;
}

/* Run a program. Returns the number of results, or -1 after an error.
 *
 * arguments: contiguous tensors of the program's types, in the order that the file next to the library lists. The call
 *   takes them over and calls their deleters when it is done with them. The program writes to those that it updates.
 * results: receives at most `capacity` tensors. Call their deleters after use.
 */
static int meta_program_run(meta_program* program, DLManagedTensor** arguments, int count, DLManagedTensor** results,
                            int capacity) {
  TVMFFIAny args[256], result = meta_any_(kTVMFFINone);
  int taken = 0, found = -1;
  if (count <= (int)(sizeof args / sizeof *args)) {
    for (; taken < count; ++taken) {
      TVMFFIObjectHandle tensor = NULL;
      if (TVMFFITensorFromDLPack(arguments[taken], META_PROGRAM_ALIGNMENT, 1, &tensor)) break;
      args[taken] = meta_object_(kTVMFFITensor, tensor);
    }
  } else {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "more than 256 arguments");
  }
  if (taken == count && TVMFFIFunctionCall(program->run, args, count, &result) == 0) {
    TVMFFIAny size = meta_int_(result.type_index == kTVMFFITensor);
    int is_array = result.type_index == kTVMFFIArray;
    if (!is_array || meta_global_("ffi.ArraySize", &result, 1, &size) == 0) {
      found = (int)size.v_int64;
      for (int i = 0; i < found && i < capacity; ++i) {
        TVMFFIAny item = result, key[2] = {result, meta_int_(i)};
        if (is_array && meta_global_("ffi.ArrayGetItem", key, 2, &item)) {
          found = -1;
          break;
        }
        int status = TVMFFITensorToDLPack(item.v_obj, &results[i]);
        if (is_array) TVMFFIObjectDecRef(item.v_obj);
        if (status) found = -1;
      }
    }
  }
  if (result.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(result.v_obj);
  for (int i = 0; i < taken; ++i) TVMFFIObjectDecRef(args[i].v_obj);
  for (int i = taken; i < count; ++i)
    if (arguments[i]->deleter) arguments[i]->deleter(arguments[i]);
  return found;
}

/* The text of the last error of this thread. */
static const char* meta_program_error(char* text, size_t size) {
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (size) text[0] = 0;
  if (error == NULL || size == 0) return text;
  TVMFFIErrorCell* cell = (TVMFFIErrorCell*)((char*)error + sizeof(TVMFFIObject));
  size_t length = cell->message.size < size - 1 ? cell->message.size : size - 1;
  memcpy(text, cell->message.data, length);
  text[length] = 0;
  TVMFFIObjectDecRef(error);
  return text;
}

#endif
