// Rows of a parquet file, an Arrow IPC file or an Arrow IPC stream as JSON objects, read with
// Arrow. Not thread-safe; exceptions of Arrow and of the JSON library end here.
#include <arrow/api.h>
#include <arrow/compute/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "data/arrow_plugin.h"

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kBatchRows = 1024;

[[noreturn]] void fail(const std::string& message) { throw std::runtime_error(message); }

// Bytes are marked as such: base64 text alone could be taken for a prompt.
OrderedJson bytes_json(std::string_view bytes) {
  static const char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return {{"base64", std::move(out)}};
}

OrderedJson value_at(const arrow::Array& array, int64_t row);

template <typename List>
OrderedJson list_at(const arrow::Array& array, int64_t row) {
  const auto& list = static_cast<const List&>(array);
  OrderedJson out = OrderedJson::array();
  const int64_t begin = list.value_offset(row), end = begin + list.value_length(row);
  for (int64_t i = begin; i < end; ++i) out.push_back(value_at(*list.values(), i));
  return out;
}

// A map with text keys is an object; with others a list of [key, value].
OrderedJson map_at(const arrow::Array& array, int64_t row) {
  const auto& map = static_cast<const arrow::MapArray&>(array);
  const bool named = arrow::is_base_binary_like(map.map_type()->key_type()->id());
  OrderedJson out = named ? OrderedJson::object() : OrderedJson::array();
  const int64_t begin = map.value_offset(row), end = begin + map.value_length(row);
  for (int64_t i = begin; i < end; ++i) {
    OrderedJson key = value_at(*map.keys(), i), value = value_at(*map.items(), i);
    if (named) {
      out[key.get<std::string>()] = std::move(value);
    } else {
      out.push_back({std::move(key), std::move(value)});
    }
  }
  return out;
}

OrderedJson struct_at(const arrow::Array& array, int64_t row) {
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  OrderedJson out = OrderedJson::object();
  for (int i = 0; i < fields.num_fields(); ++i)
    out[fields.struct_type()->field(i)->name()] = value_at(*fields.field(i), row);
  return out;
}

// JSON knows no NaN and no infinity: they are null, which pandas means by NaN anyway.
OrderedJson finite(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson();
}

template <typename Array>
auto plain(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).GetView(row);
}

// Of a type without a counterpart in JSON: dates, times, decimals, ... as Arrow writes them.
OrderedJson text_at(const arrow::Array& array, int64_t row) {
  if (arrow::is_nested(array.type_id()))
    fail("a column of type " + array.type()->ToString() +
         " cannot be read; cast it to another one");
  const auto scalar = array.GetScalar(row);
  if (!scalar.ok()) fail(scalar.status().ToString());
  return (*scalar)->ToString();
}

OrderedJson value_at(const arrow::Array& array, int64_t row) {
  if (array.IsNull(row)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::NA:
      return nullptr;
    case arrow::Type::BOOL:
      return plain<arrow::BooleanArray>(array, row);
    case arrow::Type::INT8:
      return plain<arrow::Int8Array>(array, row);
    case arrow::Type::INT16:
      return plain<arrow::Int16Array>(array, row);
    case arrow::Type::INT32:
      return plain<arrow::Int32Array>(array, row);
    case arrow::Type::INT64:
      return plain<arrow::Int64Array>(array, row);
    case arrow::Type::UINT8:
      return plain<arrow::UInt8Array>(array, row);
    case arrow::Type::UINT16:
      return plain<arrow::UInt16Array>(array, row);
    case arrow::Type::UINT32:
      return plain<arrow::UInt32Array>(array, row);
    case arrow::Type::UINT64:
      return plain<arrow::UInt64Array>(array, row);
    case arrow::Type::HALF_FLOAT:
      return finite(
          arrow::util::Float16::FromBits(plain<arrow::HalfFloatArray>(array, row)).ToDouble());
    case arrow::Type::FLOAT:
      return finite(plain<arrow::FloatArray>(array, row));
    case arrow::Type::DOUBLE:
      return finite(plain<arrow::DoubleArray>(array, row));
    case arrow::Type::STRING:
      return plain<arrow::StringArray>(array, row);
    case arrow::Type::LARGE_STRING:
      return plain<arrow::LargeStringArray>(array, row);
    case arrow::Type::BINARY:
      return bytes_json(plain<arrow::BinaryArray>(array, row));
    case arrow::Type::LARGE_BINARY:
      return bytes_json(plain<arrow::LargeBinaryArray>(array, row));
    case arrow::Type::FIXED_SIZE_BINARY:
      return bytes_json(plain<arrow::FixedSizeBinaryArray>(array, row));
    case arrow::Type::BINARY_VIEW:
      return bytes_json(plain<arrow::BinaryViewArray>(array, row));
    case arrow::Type::STRING_VIEW:
      return plain<arrow::StringViewArray>(array, row);
    case arrow::Type::LIST:
      return list_at<arrow::ListArray>(array, row);
    case arrow::Type::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, row);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, row);
    case arrow::Type::MAP:
      return map_at(array, row);
    case arrow::Type::STRUCT:
      return struct_at(array, row);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return value_at(*coded.dictionary(), coded.GetValueIndex(row));
    }
    default:
      return text_at(array, row);
  }
}

void check(const arrow::Status& status) {
  if (!status.ok()) fail(status.ToString());
}

// False when `visit` ended it.
bool visit_batch(const arrow::RecordBatch& batch, BraidArrowVisit visit, void* context) {
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    OrderedJson out = OrderedJson::object();
    for (int column = 0; column < batch.num_columns(); ++column) {
      const std::string& name = batch.column_name(column);
      if (!out.emplace(name, value_at(*batch.column(column), row)).second)
        fail("two columns are called '" + name + "'");
    }
    const std::string text = out.dump();
    if (visit(context, text.data(), text.size()) != 0) return false;
  }
  return true;
}

// As long as `visit` takes them.
bool visit_batches(arrow::RecordBatchReader& reader, BraidArrowVisit visit, void* context) {
  std::shared_ptr<arrow::RecordBatch> batch;
  while (true) {
    check(reader.ReadNext(&batch));
    if (batch == nullptr) return true;
    check(batch->ValidateFull());
    if (!visit_batch(*batch, visit, context)) return false;
  }
}

template <typename Value>
Value got(arrow::Result<Value> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

bool visit_parquet(const char* path, BraidArrowVisit visit, void* context) {
  parquet::arrow::FileReaderBuilder builder;
  check(builder.OpenFile(path));
  parquet::ArrowReaderProperties properties;
  properties.set_batch_size(kBatchRows);
  properties.set_use_threads(false);
  builder.properties(properties);
  std::unique_ptr<parquet::arrow::FileReader> reader;
  check(builder.Build(&reader));
  for (int group = 0; group < reader->num_row_groups(); ++group) {
    const auto batches = got(reader->GetRecordBatchReader(std::vector<int>{group}));
    if (!visit_batches(*batches, visit, context)) return false;
  }
  return true;
}

bool visit_ipc_file(const std::shared_ptr<arrow::io::RandomAccessFile>& file, BraidArrowVisit visit,
                    void* context) {
  const auto reader = got(arrow::ipc::RecordBatchFileReader::Open(file));
  for (int i = 0; i < reader->num_record_batches(); ++i) {
    const auto batch = got(reader->ReadRecordBatch(i));
    check(batch->ValidateFull());
    if (!visit_batch(*batch, visit, context)) return false;
  }
  return true;
}

// A stream ends in a mark. Arrow takes the end of the file for one, so that rows of a file that was
// cut off between two batches would be missing without a word.
void check_stream_end(arrow::io::RandomAccessFile& file) {
  constexpr int64_t kMarkBytes = 8;
  const int64_t size = got(file.GetSize());
  const auto end = got(file.ReadAt(std::max<int64_t>(size - kMarkBytes, 0), kMarkBytes));
  if (end->ToString() != std::string("\xff\xff\xff\xff\0\0\0\0", kMarkBytes))
    fail("the Arrow stream has no end mark: the file was cut off, or is still being written");
}

bool visit_ipc_stream(const std::shared_ptr<arrow::io::RandomAccessFile>& file,
                      BraidArrowVisit visit, void* context) {
  check_stream_end(*file);
  check(file->Seek(0));  // ReadAt leaves no position
  const auto reader = got(arrow::ipc::RecordBatchStreamReader::Open(file));
  return visit_batches(*reader, visit, context);
}

bool visit_rows(const char* path, BraidArrowVisit visit, void* context) {
  const auto file = got(arrow::io::ReadableFile::Open(path));
  const std::string start = got(file->ReadAt(0, 6))->ToString();
  if (start.rfind("PAR1", 0) == 0) return visit_parquet(path, visit, context);
  return start == "ARROW1" ? visit_ipc_file(file, visit, context)
                           : visit_ipc_stream(file, visit, context);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int braid_arrow_rows(const char* path,
                                                                       BraidArrowVisit visit,
                                                                       void* context, char* error,
                                                                       size_t error_bytes) {
  try {
    return visit_rows(path, visit, context) ? 0 : 2;
  } catch (const std::exception& problem) {
    std::strncpy(error, problem.what(), error_bytes - 1);
    error[error_bytes - 1] = 0;
    return 1;
  }
}
