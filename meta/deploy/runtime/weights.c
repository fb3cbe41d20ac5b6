/* State and constants from and to files in the safetensors format (https://huggingface.co/docs/safetensors): the
 * length of a header in 8 bytes, the header as JSON, the data. */
#include "meta_runtime.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum {
  MAX_HEADER = 100 << 20, /* bytes, as in the format's own package */
  MAX_NAME = 512,         /* bytes of a name; longer ones are no names of a program */
  MAX_DEPTH = 16
};

/* A file, or memory. read: a pointer, so that programs that use no files are linked without them. */
typedef struct source {
  int (*read)(const struct source *source, uint64_t offset, void *target, size_t bytes);
  const void *data;
  uint64_t size;
} source_t;

static int read_memory(const source_t *source, uint64_t offset, void *target, size_t bytes) {
  if (bytes) memcpy(target, (const unsigned char *)source->data + offset, bytes);
  return 0;
}

static int read_file(const source_t *source, uint64_t offset, void *target, size_t bytes) {
  FILE *file = (FILE *)(uintptr_t)source->data;
  if (offset > INT32_MAX && sizeof(long) < 8) return -1;
  if (fseek(file, (long)offset, SEEK_SET)) return -1;
  return fread(target, 1, bytes, file) == bytes ? 0 : -1;
}

static int read_at(const source_t *source, uint64_t offset, void *target, size_t bytes) {
  if (offset > source->size || bytes > source->size - offset) return -1;
  return source->read(source, offset, target, bytes);
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *at, *end;
} cursor_t;

static void skip_space(cursor_t *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t')) ++c->at;
}

static int take(cursor_t *c, char expected) {
  skip_space(c);
  if (c->at == c->end || *c->at != expected) return 0;
  ++c->at;
  return 1;
}

static int hex4(cursor_t *c, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < 4; ++i, ++c->at) {
    if (c->at == c->end) return -1;
    char d = *c->at;
    int digit = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
    if (digit < 0) return -1;
    *value = *value * 16 + (uint32_t)digit;
  }
  return 0;
}

/* A string as UTF-8 that ends with 0. One that is longer than `capacity` becomes "". */
static int read_string(cursor_t *c, char *text, size_t capacity) {
  size_t length = 0;
  if (!take(c, '"')) return -1;
  while (c->at < c->end && *c->at != '"') {
    unsigned char bytes[4];
    int count = 1;
    bytes[0] = (unsigned char)*c->at++;
    if (bytes[0] < 0x20) return -1;
    if (bytes[0] == '\\') {
      static const char escapes[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
      if (c->at == c->end) return -1;
      char escape = *c->at++;
      const char *found = escape ? strchr(escapes, escape) : NULL;
      if (found) {
        bytes[0] = (unsigned char)values[found - escapes];
      } else if (escape == 'u') {
        uint32_t code, low;
        if (hex4(c, &code)) return -1;
        if (code >= 0xD800 && code < 0xDC00) {
          if (c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u') return -1;
          c->at += 2;
          if (hex4(c, &low) || low < 0xDC00 || low > 0xDFFF) return -1;
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
        for (int i = count - 1; i > 0; --i, code >>= 6) bytes[i] = (unsigned char)(0x80 | (code & 0x3F));
        bytes[0] = (unsigned char)(marks[count] | code);
      } else {
        return -1;
      }
    }
    for (int i = 0; i < count; ++i, ++length)
      if (length < capacity) text[length] = (char)bytes[i];
  }
  text[length < capacity ? length : 0] = 0;
  return take(c, '"') ? 0 : -1;
}

static int read_number(cursor_t *c, uint64_t *value) {
  skip_space(c);
  const char *start = c->at;
  for (*value = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; ++c->at) {
    if (*value > (UINT64_MAX - 9) / 10) return -1;
    *value = *value * 10 + (uint64_t)(*c->at - '0');
  }
  return c->at == start ? -1 : 0;
}

/* Skip a value of any kind. */
static int skip_value(cursor_t *c, int depth) {
  char text[1];
  skip_space(c);
  if (c->at == c->end || depth > MAX_DEPTH) return -1;
  if (*c->at == '"') return read_string(c, text, sizeof text);
  char close = *c->at == '{' ? '}' : *c->at == '[' ? ']' : 0;
  if (!close) {
    const char *start = c->at;
    while (c->at < c->end && strchr("+-.eE0123456789truefalsn", *c->at) && *c->at) ++c->at;
    return c->at == start ? -1 : 0;
  }
  ++c->at;
  if (take(c, close)) return 0;
  do {
    if (close == '}' && (read_string(c, text, sizeof text) || !take(c, ':'))) return -1;
    if (skip_value(c, depth + 1)) return -1;
  } while (take(c, ','));
  return take(c, close) ? 0 : -1;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* What the header says of a tensor. ndim: also of those with more axes than a program's tensors have. */
typedef struct {
  char name[MAX_NAME];
  int64_t shape[META_MAX_AXES];
  uint64_t start, end;
  int32_t ndim;
  int32_t dtype; /* -1 for others */
} entry_t;

static int read_shape(cursor_t *c, entry_t *entry) {
  uint64_t size;
  entry->ndim = 0;
  if (!take(c, '[')) return -1;
  if (take(c, ']')) return 0;
  do {
    if (read_number(c, &size) || size > INT64_MAX || entry->ndim == INT32_MAX) return -1;
    if (entry->ndim < META_MAX_AXES) entry->shape[entry->ndim] = (int64_t)size;
    ++entry->ndim;
  } while (take(c, ','));
  return take(c, ']') ? 0 : -1;
}

static int read_fields(cursor_t *c, entry_t *entry) {
  char key[16], dtype[8];
  unsigned seen = 0;
  if (!take(c, '{')) return -1;
  do {
    if (read_string(c, key, sizeof key) || !take(c, ':')) return -1;
    if (!strcmp(key, "dtype")) {
      if (read_string(c, dtype, sizeof dtype)) return -1;
      entry->dtype = -1;
      for (int i = 0; i < META_DTYPES; ++i)
        if (!strcmp(dtype, meta_dtype_names[i])) entry->dtype = i;
      seen |= 1;
    } else if (!strcmp(key, "shape")) {
      if (read_shape(c, entry)) return -1;
      seen |= 2;
    } else if (!strcmp(key, "data_offsets")) {
      if (!take(c, '[') || read_number(c, &entry->start) || !take(c, ',') || read_number(c, &entry->end) || !take(c, ']'))
        return -1;
      seen |= 4;
    } else {
      return -1;
    }
  } while (take(c, ','));
  return take(c, '}') && seen == 7 ? 0 : -1;
}

/* The number of a parameter that files hold, -1 for other names. */
static int32_t find(const meta_program *program, const char *name) {
  for (int32_t i = 0; name[0] && i < program->code->parameter_count; ++i) {
    const meta_parameter *parameter = &program->code->parameters[i];
    if (parameter->role != META_INPUT && parameter->role != META_RESULT && !strcmp(parameter->name, name)) return i;
  }
  return -1;
}

static int check_entry(meta_program *program, const entry_t *entry, const meta_parameter *parameter) {
  if (entry->dtype != parameter->dtype)
    return meta_fail(program, META_ERROR_DTYPE, "'%s' is %s in the file; expected %s", parameter->name,
                     entry->dtype < 0 ? "of an unknown dtype" : meta_dtype_names[entry->dtype],
                     meta_dtype_names[parameter->dtype]);
  if (entry->ndim != parameter->ndim)
    return meta_fail(program, META_ERROR_SHAPE, "'%s' has %d axes in the file; expected %d", parameter->name,
                     (int)entry->ndim, (int)parameter->ndim);
  for (int32_t i = 0; i < entry->ndim; ++i)
    if (entry->shape[i] != parameter->shape[i])
      return meta_fail(program, META_ERROR_SHAPE, "axis %d of '%s' has the size %lld in the file; expected %lld", (int)i,
                       parameter->name, (long long)entry->shape[i], (long long)parameter->shape[i]);
  return META_OK;
}

/* Go through a header. starts: receives where the data of parameters begins in the file, 0 for none. */
static int read_header(meta_program *program, cursor_t *c, uint64_t data, uint64_t size, uint64_t *starts) {
  entry_t entry;
  if (!take(c, '{')) goto malformed;
  if (!take(c, '}')) {
    do {
      if (read_string(c, entry.name, sizeof entry.name) || !take(c, ':')) goto malformed;
      if (!strcmp(entry.name, "__metadata__")) {
        if (skip_value(c, 0)) goto malformed;
        continue;
      }
      if (read_fields(c, &entry) || entry.start > entry.end || entry.end > size - data) goto malformed;
      int32_t i = find(program, entry.name);
      if (i < 0) continue;
      int status = check_entry(program, &entry, &program->code->parameters[i]);
      if (status) return status;
      const meta_view *view = &program->views[program->code->parameter_views[i]];
      if (entry.end - entry.start != meta_bytes(view)) goto malformed;
      starts[i] = data + entry.start;
    } while (take(c, ','));
    if (!take(c, '}')) goto malformed;
  }
  skip_space(c);
  if (c->at == c->end) return META_OK;
malformed:
  return meta_fail(program, META_ERROR_FORMAT, "the file is not a whole file in the safetensors format");
}

static int load_tensors(meta_program *program, const source_t *source, const uint64_t *starts) {
  int found = 0;
  for (int32_t i = 0; i < program->code->parameter_count; ++i) {
    if (!starts[i]) continue;
    found = 1;
    char *data = program->slots[1 + i];
    size_t bytes = meta_bytes(&program->views[program->code->parameter_views[i]]);
    if (read_at(source, starts[i], data, bytes))
      return meta_fail(program, META_ERROR_FILE, "'%s' cannot be read", program->code->parameters[i].name);
    if (program->code->parameters[i].dtype == META_BOOL)
      for (size_t j = 0; j < bytes; ++j) data[j] = data[j] != 0;
    program->kinds[1 + i] = META_LOADED;
  }
  if (found) return META_OK;
  return meta_fail(program, META_ERROR_NAME, "the file has no state or constant of %s", program->code->name);
}

static int load(meta_program *program, const source_t *source) {
  unsigned char length[8];
  uint64_t bytes = 0;
  size_t count = (size_t)program->code->parameter_count;
  if (!read_at(source, 0, length, sizeof length))
    for (int i = 7; i >= 0; --i) bytes = bytes << 8 | length[i];
  if (bytes < 2 || bytes > MAX_HEADER || bytes > source->size - sizeof length)
    return meta_fail(program, META_ERROR_FORMAT, "the file is not a whole file in the safetensors format");
  char *header = meta_allocate(program, (size_t)bytes);
  uint64_t *starts = meta_allocate(program, count * sizeof *starts);
  int status;
  if (!header || !starts) {
    status = meta_fail(program, META_ERROR_MEMORY, "memory ran out: a header has %llu bytes", (unsigned long long)bytes);
  } else if (read_at(source, sizeof length, header, (size_t)bytes)) {
    status = meta_fail(program, META_ERROR_FILE, "the header cannot be read");
  } else {
    memset(starts, 0, count * sizeof *starts);
    cursor_t cursor = {header, header + bytes};
    status = read_header(program, &cursor, sizeof length + bytes, source->size, starts);
    if (!status) status = load_tensors(program, source, starts);
  }
  meta_release(program, starts);
  meta_release(program, header);
  return status;
}

int meta_program_load_memory(meta_program *program, const void *data, size_t size) {
  if (program == NULL || data == NULL) return META_ERROR_ARGUMENT;
  source_t source = {read_memory, data, size};
  return load(program, &source);
}

int meta_program_load(meta_program *program, const char *path) {
  if (program == NULL || path == NULL) return META_ERROR_ARGUMENT;
  FILE *file = fopen(path, "rb");
  if (file == NULL) return meta_fail(program, META_ERROR_FILE, "%.120s cannot be opened: %s", path, strerror(errno));
  long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  source_t source = {read_file, file, size < 0 ? 0 : (uint64_t)size};
  int status = load(program, &source);
  fclose(file);
  return status;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

/* A file, or memory, which keeps what fits. size: bytes that were put. */
typedef struct sink {
  void (*put)(struct sink *sink, const void *data, size_t bytes);
  void *target;
  size_t capacity, size;
} sink_t;

static void put_memory(sink_t *sink, const void *data, size_t bytes) {
  if (sink->size <= sink->capacity && bytes <= sink->capacity - sink->size)
    memcpy((char *)sink->target + sink->size, data, bytes);
  sink->size += bytes;
}

static void put_file(sink_t *sink, const void *data, size_t bytes) {
  fwrite(data, 1, bytes, sink->target);
  sink->size += bytes;
}

static void put(sink_t *sink, const char *format, ...) {
  char text[80];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  sink->put(sink, text, (size_t)length);
}

static void put_string(sink_t *sink, const char *text) {
  put(sink, "\"");
  for (; *text; ++text) {
    if (*text == '"' || *text == '\\') put(sink, "\\%c", *text);
    else if ((unsigned char)*text < 0x20) put(sink, "\\u%04x", (unsigned)*text);
    else sink->put(sink, text, 1);
  }
  put(sink, "\"");
}

static int is_written(const meta_program *program, int32_t i, int updated) {
  const meta_parameter *parameter = &program->code->parameters[i];
  if (parameter->role == META_INPUT || parameter->role == META_RESULT || (updated && !parameter->updated)) return 0;
  return program->kinds[1 + i] == META_LOADED;
}

static size_t bytes_of(const meta_program *program, int32_t i) {
  return meta_bytes(&program->views[program->code->parameter_views[i]]);
}

static void put_header(sink_t *sink, const meta_program *program, int updated) {
  uint64_t offset = 0;
  put(sink, "{\"__metadata__\":{\"format\":\"meta\"}");
  for (int32_t i = 0; i < program->code->parameter_count; ++i) {
    const meta_parameter *parameter = &program->code->parameters[i];
    if (!is_written(program, i, updated)) continue;
    put(sink, ",");
    put_string(sink, parameter->name);
    put(sink, ":{\"dtype\":\"%s\",\"shape\":[", meta_dtype_names[parameter->dtype]);
    for (int32_t axis = 0; axis < parameter->ndim; ++axis)
      put(sink, axis ? ",%lld" : "%lld", (long long)parameter->shape[axis]);
    uint64_t end = offset + bytes_of(program, i);
    put(sink, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset, (unsigned long long)end);
    offset = end;
  }
  put(sink, "}");
}

static void put_program(sink_t *sink, const meta_program *program, int updated) {
  sink_t counter = {put_memory, NULL, 0, 0};
  unsigned char length[8];
  put_header(&counter, program, updated);
  size_t header = (counter.size + 7) / 8 * 8;
  for (int i = 0; i < 8; ++i) length[i] = (unsigned char)((uint64_t)header >> 8 * i);
  sink->put(sink, length, sizeof length);
  put_header(sink, program, updated);
  put(sink, "%*s", (int)(header - counter.size), "");
  for (int32_t i = 0; i < program->code->parameter_count; ++i)
    if (is_written(program, i, updated)) sink->put(sink, program->slots[1 + i], bytes_of(program, i));
}

size_t meta_program_save_memory(const meta_program *program, void *data, size_t capacity) {
  sink_t sink = {put_memory, data, data == NULL ? 0 : capacity, 0};
  if (program != NULL) put_program(&sink, program, 0);
  return sink.size;
}

static int save(meta_program *program, const char *path, int updated) {
  if (program == NULL || path == NULL) return META_ERROR_ARGUMENT;
  size_t length = strlen(path);
  char *temporary = meta_allocate(program, length + 5);
  if (temporary == NULL) return meta_fail(program, META_ERROR_MEMORY, "memory ran out");
  memcpy(temporary, path, length);
  memcpy(temporary + length, ".new", 5);
  FILE *file = fopen(temporary, "wb");
  int failed = file == NULL;
  if (file != NULL) {
    sink_t sink = {put_file, file, 0, 0};
    put_program(&sink, program, updated);
    failed = ferror(file);
    failed |= fclose(file) != 0;
    if (!failed) failed = rename(temporary, path) != 0;
    if (failed) remove(temporary);
  }
  int status = failed ? meta_fail(program, META_ERROR_FILE, "%.120s cannot be written: %s", path, strerror(errno)) : META_OK;
  meta_release(program, temporary);
  return status;
}

int meta_program_save(meta_program *program, const char *path) { return save(program, path, 0); }

int meta_program_save_updated(meta_program *program, const char *path) { return save(program, path, 1); }
