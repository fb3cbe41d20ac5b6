// Programs that meta compiled, in C++17: meta_program.h with destructors and exceptions.
//
//     meta::Program program(net_code, "net.safetensors");
//     alignas(META_ALIGNMENT) float pixels[784] = {...};
//     std::vector<meta::Tensor> results = program.run({meta::tensor(pixels, {1, 784})});
//     const float *scores = results[0].data<float>();       // valid until the next run
#ifndef META_PROGRAM_HPP_
#define META_PROGRAM_HPP_

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "meta_program.h"

namespace meta {

// What a function of meta_program.h returned, and its text.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string &text) : std::runtime_error(text), code(code) {}
  const int code;
};

template <typename T> struct dtype_of;
template <> struct dtype_of<bool> { static constexpr meta_dtype value = META_BOOL; };
template <> struct dtype_of<std::uint8_t> { static constexpr meta_dtype value = META_UINT8; };
template <> struct dtype_of<std::int8_t> { static constexpr meta_dtype value = META_INT8; };
template <> struct dtype_of<std::int32_t> { static constexpr meta_dtype value = META_INT32; };
template <> struct dtype_of<std::int64_t> { static constexpr meta_dtype value = META_INT64; };
template <> struct dtype_of<float> { static constexpr meta_dtype value = META_FLOAT32; };
template <> struct dtype_of<double> { static constexpr meta_dtype value = META_FLOAT64; };

// A contiguous tensor in memory of its owner. data<T>() throws for another dtype.
class Tensor : public meta_tensor {
 public:
  Tensor() : meta_tensor{} {}
  template <typename T> T *data() const {
    if (dtype != dtype_of<T>::value) throw Error(META_ERROR_DTYPE, "the tensor has another dtype");
    return static_cast<T *>(meta_tensor::data);
  }
  std::int64_t size() const {
    std::int64_t elements = 1;
    for (int i = 0; i < ndim; ++i) elements *= shape[i];
    return elements;
  }
};

// A tensor in memory that starts at a multiple of META_ALIGNMENT bytes.
template <typename T> Tensor tensor(T *data, std::initializer_list<std::int64_t> shape) {
  if (shape.size() > META_MAX_AXES) throw Error(META_ERROR_SHAPE, "more than META_MAX_AXES axes");
  Tensor out;
  static_cast<meta_tensor &>(out).data = data;
  out.dtype = dtype_of<T>::value;
  for (std::int64_t size : shape) out.shape[out.ndim++] = size;
  return out;
}

// A program of its own state. It is used by one thread at a time.
class Program {
 public:
  explicit Program(const meta_program_code &code, const std::string &weights = "", int threads = 1) {
    meta_options options = {threads, nullptr, nullptr, nullptr};
    if (int status = meta_program_open(&program_, &code, &options)) throw Error(status, meta_program_error(nullptr));
    if (weights.empty()) return;
    if (int status = meta_program_load(program_, weights.c_str())) {
      Error error(status, meta_program_error(program_));
      meta_program_close(program_);
      throw error;
    }
  }
  Program(Program &&other) noexcept : program_(std::exchange(other.program_, nullptr)) {}
  Program &operator=(Program &&other) noexcept {
    std::swap(program_, other.program_);
    return *this;
  }
  ~Program() { meta_program_close(program_); }

  std::vector<Tensor> run(const std::vector<Tensor> &inputs) {
    int count = 0;
    while (meta_program_parameter(program_, META_RESULT, count)) ++count;
    std::vector<meta_tensor> raw(inputs.begin(), inputs.end()), outputs(static_cast<std::size_t>(count), meta_tensor{});
    check(meta_program_run(program_, raw.data(), static_cast<int>(raw.size()), outputs.data(), count));
    std::vector<Tensor> results(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) static_cast<meta_tensor &>(results[i]) = outputs[i];
    return results;
  }
  Tensor tensor(const std::string &name) {
    Tensor out;
    check(meta_program_tensor(program_, name.c_str(), &out));
    return out;
  }
  void load(const std::string &path) { check(meta_program_load(program_, path.c_str())); }
  void save(const std::string &path) { check(meta_program_save(program_, path.c_str())); }
  void save_updated(const std::string &path) { check(meta_program_save_updated(program_, path.c_str())); }
  void seed(std::int64_t value) { meta_program_seed(program_, value); }
  meta_program *get() const { return program_; }

 private:
  void check(int status) {
    if (status) throw Error(status, meta_program_error(program_));
  }
  meta_program *program_ = nullptr;
};

}  // namespace meta
#endif
